//! What a body must be looked at for, without changing it.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use syn::{
    Block, Item, Macro, Stmt, UseTree,
    parse::Parser as _,
    visit::{self, Visit},
};

/// Macros of the prelude that another crate's import may shadow without a word.
const PRELUDE_MACROS: [&str; 3] = ["select", "join", "try_join"];

/// What was found.
#[derive(Default)]
pub(crate) struct Found {
    /// The first bare use of each of [`PRELUDE_MACROS`].
    pub(crate) macros: Vec<Ident>,
    /// The first `Self` that is the function's own.
    pub(crate) this: Option<Span>,
}

/// A body's statements. One that cannot be read is left to the compiler, which says so itself.
pub(crate) fn read(body: TokenStream) -> Option<Vec<Stmt>> {
    Block::parse_within.parse2(body).ok()
}

/// Looks into a body.
pub(crate) fn look(stmts: &[Stmt]) -> Found {
    let mut look = Look::default();
    stmts.iter().for_each(|stmt| look.visit_stmt(stmt));
    look.found
}

/// Whether a bare macro of that name is expected to be the prelude's.
pub(crate) fn is_prelude_macro(name: &Ident) -> bool {
    PRELUDE_MACROS.iter().any(|known| name == known)
}

/// Whether the tokens mention that name.
pub(crate) fn mentions(tokens: TokenStream, name: &str) -> bool {
    find(tokens, name).is_some()
}

fn find(tokens: TokenStream, name: &str) -> Option<Span> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Ident(ident) if ident == name => Some(ident.span()),
        TokenTree::Group(group) => find(group.stream(), name),
        _ => None,
    })
}

#[derive(Default)]
struct Look {
    found: Found,
    depth: usize,
    /// Names that an inner block imports: the check at the top of the body does not see those.
    inner_imports: Vec<String>,
}

impl<'ast> Visit<'ast> for Look {
    fn visit_block(&mut self, block: &'ast Block) {
        self.depth += 1;
        visit::visit_block(self, block);
        self.depth -= 1;
    }

    /// Items have a `Self` and imports of their own.
    fn visit_item(&mut self, item: &'ast Item) {
        if let Item::Use(import) = item
            && self.depth > 0
        {
            imported(&import.tree, &mut self.inner_imports);
            self.found.macros.retain(|name| !self.inner_imports.contains(&name.to_string()));
        }
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        if let Some(name) = call.path.get_ident()
            && is_prelude_macro(name)
            && !self.found.macros.contains(name)
            && !self.inner_imports.contains(&name.to_string())
        {
            self.found.macros.push(name.clone());
        }
        if let Some(span) = find(call.tokens.clone(), "Self") {
            self.found.this.get_or_insert(span);
        }
        visit::visit_macro(self, call);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let Some(first) = path.segments.first()
            && first.ident == "Self"
        {
            self.found.this.get_or_insert(first.ident.span());
        }
        visit::visit_path(self, path);
    }
}

fn imported(tree: &UseTree, names: &mut Vec<String>) {
    match tree {
        UseTree::Path(path) => imported(&path.tree, names),
        UseTree::Name(name) => names.push(name.ident.to_string()),
        UseTree::Rename(rename) => names.push(rename.rename.to_string()),
        UseTree::Glob(_) => names.extend(PRELUDE_MACROS.map(String::from)),
        UseTree::Group(group) => group.items.iter().for_each(|tree| imported(tree, names)),
    }
}
