//! The targets that `make test` runs too, for the programs in `fuzz_targets/`.

mod support {
    #[path = "../../support/changelog.rs"]
    mod changelog;
    #[path = "../../support/in_process.rs"]
    pub mod in_process;
}

pub mod targets;
