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
