//! The rules of ARCHITECTURE.md that can be read off the source, each a test.

use xtask::tidy::{self, Rule, Tree};

#[track_caller]
fn check(rule: Rule) {
    let tree = Tree::read().unwrap_or_else(|e| panic!("{e}"));
    tree.check(rule).unwrap_or_else(|broken| panic!("{broken}"));
}

#[test]
fn sql_is_only_in_the_stores() {
    check(tidy::SQL_ONLY_IN_STORES);
}

#[test]
fn redis_is_only_in_the_dispatchers() {
    check(tidy::REDIS_ONLY_IN_DISPATCH);
}

#[test]
fn the_wall_clock_is_only_in_clock() {
    check(tidy::WALL_CLOCK_ONLY_IN_CLOCK);
}

#[test]
fn the_sdk_touches_the_world_only_in_http() {
    check(tidy::SDK_IS_PURE);
}

#[test]
fn every_crate_forbids_unsafe_code() {
    check(tidy::UNSAFE_IS_FORBIDDEN);
}

#[test]
fn no_file_names_a_machine_of_ours() {
    check(tidy::NO_MACHINE_IS_NAMED);
}

#[test]
fn every_module_opens_with_what_it_is_for() {
    check(tidy::MODULES_HAVE_HEADERS);
}

#[test]
fn the_book_builds() {
    xtask::book::run().unwrap_or_else(|broken| panic!("{broken}"));
}
