//! What a body says itself about its names: what it imports, declares and binds, scope by scope.
//!
//! What stands outside the function is not seen. So a bare name means something only if the body imports it, and a
//! path only if it begins like the known one.

use std::collections::HashMap;

use proc_macro2::Ident;
use syn::{Item, Path, Stmt, UseTree};

/// What a variable visibly holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    /// Something else, or nobody knows.
    Other,
    /// A `HashMap`, in an order of its own.
    HashMap,
    /// A `HashSet`, likewise.
    HashSet,
    /// Futures that will be polled together, in the order in which they are put in.
    Futures,
    /// What `workflow::now()` returned.
    Now,
}

#[derive(Default)]
struct Scope {
    /// From an imported name to the whole path; an item of the body is nobody's path.
    paths: HashMap<String, Option<Vec<String>>>,
    variables: HashMap<String, Holds>,
}

/// The scopes around the place that is looked at.
#[derive(Default)]
pub(super) struct Names(Vec<Scope>);

impl Names {
    pub(super) fn enter(&mut self) {
        self.0.push(Scope::default());
    }

    pub(super) fn leave(&mut self) {
        self.0.pop();
    }

    /// Items and imports are known in the whole block, also before they are written.
    pub(super) fn declare(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            let Stmt::Item(item) = stmt else { continue };
            match item {
                Item::Use(import) => self.import(&import.tree, &mut Vec::new()),
                Item::Enum(item) => self.declare_one(&item.ident),
                Item::Fn(item) => self.declare_one(&item.sig.ident),
                Item::Mod(item) => self.declare_one(&item.ident),
                Item::Struct(item) => self.declare_one(&item.ident),
                Item::Trait(item) => self.declare_one(&item.ident),
                Item::Type(item) => self.declare_one(&item.ident),
                _ => {}
            }
        }
    }

    fn declare_one(&mut self, name: &Ident) {
        self.set_path(name, None);
    }

    fn import(&mut self, tree: &UseTree, before: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.import(&path.tree, before);
                before.pop();
            }
            UseTree::Name(name) if name.ident == "self" => {
                if let Some(last) = before.last().cloned() {
                    self.set_path(&last, Some(before.clone()));
                }
            }
            UseTree::Name(name) => self.set_path(&name.ident, Some(joined(before, &name.ident))),
            UseTree::Rename(name) if name.ident == "self" => {
                self.set_path(&name.rename, Some(before.clone()));
            }
            UseTree::Rename(name) => self.set_path(&name.rename, Some(joined(before, &name.ident))),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, before)),
            UseTree::Glob(_) => {}
        }
    }

    fn set_path(&mut self, name: &impl ToString, path: Option<Vec<String>>) {
        if let Some(scope) = self.0.last_mut() {
            scope.paths.insert(name.to_string(), path);
        }
    }

    pub(super) fn bind(&mut self, name: &Ident, holds: Holds) {
        if let Some(scope) = self.0.last_mut() {
            scope.variables.insert(name.to_string(), holds);
        }
    }

    /// What a variable of that name holds; `None` if there is none.
    pub(super) fn variable(&self, name: &Ident) -> Option<Holds> {
        let name = name.to_string();
        self.0.iter().rev().find_map(|scope| scope.variables.get(&name)).copied()
    }

    /// The path from a crate on, as far as the body says; `None` if it is the user's own.
    pub(super) fn resolve(&self, path: &Path) -> Option<Vec<String>> {
        let written = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if path.leading_colon.is_some() {
            return Some(written);
        }
        let variable = path.get_ident().and_then(|name| self.variable(name));
        if variable.is_some() { None } else { self.expand(written, 0) }
    }

    fn expand(&self, written: Vec<String>, depth: usize) -> Option<Vec<String>> {
        let (first, rest) = written.split_first()?;
        if ["crate", "self", "super", "Self"].contains(&first.as_str()) {
            return None;
        }
        match self.0.iter().rev().find_map(|scope| scope.paths.get(first)) {
            // One import may build on another (`use tokio::time; use time::sleep;`), but not for ever.
            Some(Some(path)) if depth < 3 && path.first() != Some(first) => {
                self.expand(path.iter().chain(rest).cloned().collect(), depth + 1)
            }
            Some(None) => None,
            _ => Some(written),
        }
    }
}

fn joined(before: &[String], last: &Ident) -> Vec<String> {
    before.iter().cloned().chain([last.to_string()]).collect()
}
