//! Entry point of the `keepsake` program. Everything else is in the library, so that tests can use
//! it.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    keepsake::cli::main()
}
