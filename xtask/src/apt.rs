//! Installing a server where the machine has none: with apt-get, as root on Debian and its kin.
//!
//! Only the programs are wanted. The services that such a package would start by itself, and the cluster that it
//! would make, are held back while apt runs; what holds them back is removed again.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::command::{output, run, shown};

/// Installs the packages.
///
/// # Errors
/// When this is not root on a Debian-like system, with what to install by hand; or when apt fails.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let names = packages.join(" ");
    if !Path::new("/etc/debian_version").exists() || output(Command::new("apt-get").arg("--version")).is_err()
    {
        return Err(format!(
            "{names} not found on this machine: install it, or put its programs on the PATH"
        ));
    }
    if output(Command::new("id").arg("-u"))? != "0" {
        return Err(format!("{names} not found on this machine. Install it: sudo apt-get install {names}"));
    }
    eprintln!("xtask: installing {names} with apt-get");
    let _quiet = NoServices::begin()?;
    apt(&["update", "-qq"])?;
    apt(&[&["install", "-qq", "--yes", "--no-install-recommends"], packages].concat())
}

fn apt(args: &[&str]) -> Result<()> {
    let mut apt = Command::new("apt-get");
    apt.args(args).env("DEBIAN_FRONTEND", "noninteractive").stdout(std::io::stderr());
    run(&mut apt).map_err(|e| format!("{e}; to repeat it: {}", shown(&apt)))
}

/// While it lives, packages start no services and make no PostgreSQL clusters.
struct NoServices {
    made: Vec<&'static Path>,
}

impl NoServices {
    fn begin() -> Result<Self> {
        let mut this = Self { made: Vec::new() };
        // What the machine's owner has set stays as it is.
        this.make("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", 0o755)?;
        fs::create_dir_all("/etc/postgresql-common").map_err(|e| format!("/etc/postgresql-common: {e}"))?;
        this.make("/etc/postgresql-common/createcluster.conf", "create_main_cluster = false\n", 0o644)?;
        Ok(this)
    }

    fn make(&mut self, path: &'static str, text: &str, mode: u32) -> Result<()> {
        let path = Path::new(path);
        if path.exists() {
            return Ok(());
        }
        self.made.push(path);
        fs::write(path, text)
            .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
            .map_err(|e| format!("{}: {e}", path.display()))
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        for path in &self.made {
            let _ = fs::remove_file(path);
        }
    }
}
