//! From a URL to the absolute path of a file.

use std::path::{Path, PathBuf};

use super::super::{Result, StoreError};

/// The file that `sqlite:path` names. The path is taken as it stands: nothing in it is decoded.
pub(super) fn file_of(url: &str) -> Result<PathBuf> {
    let config = |message: String| StoreError::Config { message };
    let rest = url
        .strip_prefix("sqlite:")
        .ok_or_else(|| config(format!("`{url}` is no SQLite URL; write sqlite:path/to/file.db")))?;
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if path.starts_with(":memory:") || path.trim().is_empty() || query.contains("mode=memory") {
        return Err(config(format!(
            "`{url}` names no file, and what must survive needs one; write sqlite:path"
        )));
    }
    if let Some(other) = query.split('&').find(|setting| !matches!(*setting, "" | "mode=rwc" | "mode=rw")) {
        return Err(config(format!(
            "`{other}` in `{url}` is no setting of the embedded store; leave it out"
        )));
    }
    if path.contains('\0') {
        return Err(config("the path of the SQLite file contains a NUL character".into()));
    }
    let file =
        std::path::absolute(path).map_err(|e| config(format!("`{path}` cannot be made absolute: {e}")))?;
    if file.is_dir() || path.ends_with(['/', std::path::MAIN_SEPARATOR]) {
        return Err(config(format!("{} is a folder; name a file in it", file.display())));
    }
    Ok(file)
}

/// Creates the folder that the file is to be in.
pub(super) fn create_parent(file: &Path) -> Result<()> {
    let Some(folder) = file.parent() else { return Ok(()) };
    std::fs::create_dir_all(folder).map_err(|e| StoreError::Config {
        message: format!("the folder {} of the SQLite file cannot be created: {e}", folder.display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_file() {
        let file = |url: &str| file_of(url).map(|file| file.display().to_string()).unwrap();
        assert_eq!(file("sqlite:/tmp/a b.db"), "/tmp/a b.db");
        assert_eq!(file("sqlite:///tmp/x.db?mode=rwc"), "/tmp/x.db");
        assert!(file("sqlite:x.db").ends_with("/x.db"), "a relative path becomes absolute");
        assert_eq!(file("sqlite:x.db"), file("sqlite://x.db"));
    }

    #[test]
    fn a_url_without_a_file_says_what_to_write() {
        for url in [
            "sqlite::memory:",
            "sqlite:",
            "sqlite://",
            "sqlite:x?mode=memory",
            "sqlite:x?cache=shared",
            "x.db",
        ] {
            let error = file_of(url).unwrap_err();
            assert!(matches!(error, StoreError::Config { .. }), "{url}: {error}");
        }
        assert!(file_of("sqlite:/tmp").unwrap_err().to_string().contains("is a folder"));
    }
}
