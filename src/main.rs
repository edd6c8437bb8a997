use std::process::ExitCode;

/// A batch is many small things that come and go together.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    #[cfg(feature = "failpoints")]
    let _points = fail::FailScenario::setup();
    countersign::cli::main()
}
