//! What the attributes and the three waiting macros accept, and the words with which they refuse.
//!
//! `TRYBUILD=overwrite cargo test -p composer-macros --test ui` writes the words anew; read them as prose.

#[test]
fn r27_ordinary_functions_work_and_everything_else_is_refused_in_one_sentence() {
    let cases = trybuild::TestCases::new();
    for area in ["activity", "workflow", "select"] {
        cases.pass(format!("tests/ui/{area}/pass/*.rs"));
        cases.compile_fail(format!("tests/ui/{area}/fail/*.rs"));
    }
}

#[test]
fn j11_what_a_replay_would_not_repeat_is_refused_where_it_stands() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/determinism/pass/*.rs");
    cases.compile_fail("tests/ui/determinism/fail/*.rs");
}
