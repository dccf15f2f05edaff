//! Entry point of the `keepsake` program. All other code is in the crates below
//! `processors/`, where tests reach it.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::main()
}
