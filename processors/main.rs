//! The program: arguments → configuration → a command → an exit code. All of it is in the library.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    keepsake::cli::main()
}
