//! Entry point of the `keepsake` program. All other code is in the crates below
//! `processors/`, where tests reach it.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    cli::end(cli::main())
}
