//! `cargo xtask book`: the book builds.
//!
//! What can break in it is checked here, without mdBook, in no time: every chapter that `SUMMARY.md` lists exists
//! and every file of the book is listed, links between chapters lead somewhere, every included file and anchor
//! exists, and Rust code is included from files that are compiled, never typed into the text. Where the program
//! `mdbook` is installed it then builds the book into `book/book`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::run as run_command;
use crate::{Result, root};

/// Checks the book, and builds it where `mdbook` is installed.
///
/// # Errors
/// What is wrong with it, one line each.
pub fn run() -> Result<()> {
    let findings = check(&root().join("book"))?;
    if !findings.is_empty() {
        return Err(format!("the book does not build:\n  {}", findings.join("\n  ")));
    }
    if Command::new("mdbook").arg("--version").output().is_ok() {
        return run_command(Command::new("mdbook").arg("build").arg(root().join("book")));
    }
    Ok(())
}

/// Everything that is wrong with the book in this folder, one line each.
///
/// # Errors
/// When there is no readable book.
pub fn check(book: &Path) -> Result<Vec<String>> {
    let source = book.join("src");
    let summary = source.join("SUMMARY.md");
    let mut findings = Vec::new();
    let mut listed = BTreeSet::from([summary.clone()]);
    for link in links(&read(&summary)?) {
        listed.insert(source.join(link));
    }
    for chapter in &listed {
        match read(chapter) {
            Ok(text) => findings.extend(check_chapter(chapter, &text)),
            Err(e) => findings.push(format!("SUMMARY.md lists a chapter that is not there: {e}")),
        }
    }
    let unlisted = markdown_files(&source).into_iter().filter(|file| !listed.contains(file));
    findings.extend(unlisted.map(|file| format!("{}: SUMMARY.md does not list it", shown(&file))));
    Ok(findings)
}

fn check_chapter(chapter: &Path, text: &str) -> Vec<String> {
    let folder = chapter.parent().unwrap_or(chapter);
    let mut findings = Vec::new();
    for link in links(text).filter(|link| !folder.join(link).exists()) {
        findings.push(format!("{}: a link to {link}, which is not there", shown(chapter)));
    }
    for include in includes(text) {
        if let Err(e) = check_include(folder, include) {
            findings.push(format!("{}: {{{{#include {include}}}}}: {e}", shown(chapter)));
        }
    }
    for (line, block) in rust_blocks(text) {
        if includes(&block).next().is_none() {
            findings.push(format!(
                "{}:{line}: Rust code typed into the book: include it from a compiled file",
                shown(chapter)
            ));
        }
    }
    findings
}

/// `path`, `path:anchor`, or `path:from:to` with line numbers.
fn check_include(folder: &Path, include: &str) -> Result<()> {
    let (path, part) = include.split_once(':').unwrap_or((include, ""));
    let text = read(&folder.join(path))?;
    if part.chars().all(|c| c.is_ascii_digit() || c == ':') {
        return Ok(());
    }
    for mark in ["ANCHOR: ", "ANCHOR_END: "] {
        let mark = format!("{mark}{part}");
        if !text.lines().any(|line| line.trim_end().ends_with(&mark)) {
            return Err(format!("no line ends with `{mark}` there"));
        }
    }
    Ok(())
}

/// The targets of links to other files, without their fragments.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let files = targets.filter(|target| !target.contains("://") && !target.starts_with('#'));
    files.map(|target| target.split('#').next().unwrap_or(target)).filter(|target| !target.is_empty())
}

fn includes(text: &str) -> impl Iterator<Item = &str> {
    let directives = text.split("{{#").skip(1).filter_map(|rest| rest.split("}}").next());
    let named = directives.filter_map(|directive| directive.split_once(' '));
    let including = |name: &str| ["include", "rustdoc_include", "playground"].contains(&name);
    named.filter(move |(name, _)| including(name)).map(|(_, argument)| argument.trim())
}

/// The fenced blocks of Rust, with the number of their first line.
fn rust_blocks(text: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, bool, String)> = None;
    for (index, line) in text.lines().enumerate() {
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(language)) => open = Some((index + 1, language.starts_with("rust"), String::new())),
            (Some(_), Some(_)) => {
                let (line, rust, block) = open.take().expect("just seen");
                blocks.extend(rust.then_some((line, block)));
            }
            (Some((_, _, block)), None) => block.extend([line, "\n"]),
            (None, None) => {}
        }
    }
    blocks
}

fn markdown_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            found.extend(markdown_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", shown(path)))
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn finds(chapter: &str, expected: &str) {
        let findings = check_chapter(&root().join("book/src/chapter.md"), chapter).join("\n");
        assert!(findings.contains(expected) && findings.is_empty() == expected.is_empty(), "{findings}");
    }

    #[test]
    fn what_would_break_the_book_is_found() {
        finds("See [why](why.md#a), [out](https://example.org) and [here](#there).", "");
        finds("See [nothing](nothing.md).", "a link to nothing.md");
        finds("{{#include ../../xtask/src/nothing.rs}}", "nothing.rs");
        finds("{{#include ../../xtask/src/lib.rs:2:3}}", "");
        finds("{{#include ../../xtask/src/lib.rs:nowhere}}", "no line ends with `ANCHOR: nowhere`");
        finds("```rust\nfn typed() {}\n```", ":1: Rust code typed into the book");
        finds("```rust,no_run\n{{#rustdoc_include ../../xtask/src/lib.rs}}\n```\n```text\nfn\n```", "");
    }
}
