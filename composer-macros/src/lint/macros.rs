//! What stands in the arguments of a macro, which are tokens without a meaning until it is expanded.
//!
//! They are taken for what they most likely are: expressions with commas, the branches of a `select!`, or statements.
//! Where they are nothing of that kind, only calls of whole paths are seen in them.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use syn::{
    Block, Expr, Macro, Pat, Path, Stmt, Token,
    parse::{Parse, ParseStream, Parser as _},
    punctuated::Punctuated,
};

/// The arguments of a macro.
pub(super) enum Arguments {
    Branches(Vec<Branch>),
    Exprs(Punctuated<Expr, Token![,]>),
    Stmts(Vec<Stmt>),
    /// Paths that are called, in whatever it is.
    Calls(Vec<Path>),
}

/// What is in there.
pub(super) fn arguments(call: &Macro) -> Arguments {
    let tokens = || call.tokens.clone();
    let is = |name| call.path.segments.last().is_some_and(|last| last.ident == name);
    if is("stringify") {
        return Arguments::Stmts(Vec::new());
    }
    if is("select")
        && let Ok(branches) = syn::parse2::<Branches>(tokens())
    {
        return Arguments::Branches(branches.0);
    }
    if let Ok(exprs) = Punctuated::parse_terminated.parse2(tokens()) {
        return Arguments::Exprs(exprs);
    }
    if let Ok(stmts) = Block::parse_within.parse2(tokens()) {
        return Arguments::Stmts(stmts);
    }
    let mut paths = Vec::new();
    calls(tokens(), &mut paths);
    Arguments::Calls(paths)
}

/// Whether a `select!` is told to go from top to bottom.
pub(super) fn is_biased(call: &Macro) -> bool {
    begins_with(&call.tokens, "biased")
}

/// Calls of whole paths (`info!(at = ?SystemTime::now())`).
fn calls(tokens: TokenStream, paths: &mut Vec<Path>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        let length = path_length(&tokens[at..]);
        let called = matches!(tokens.get(at + length), Some(TokenTree::Group(args))
            if args.delimiter() == Delimiter::Parenthesis);
        if length > 1 && called {
            let path: TokenStream = tokens[at..at + length].iter().cloned().collect();
            paths.extend(syn::parse2::<Path>(path));
        }
        if let TokenTree::Group(group) = &tokens[at] {
            calls(group.stream(), paths);
        }
        at += length.max(1);
    }
}

/// How many tokens at the beginning are a path.
fn path_length(tokens: &[TokenTree]) -> usize {
    let is_colon =
        |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(colon)) if colon.as_char() == ':');
    let is_ident = |at: usize| matches!(tokens.get(at), Some(TokenTree::Ident(_)));
    if !is_ident(0) {
        return 0;
    }
    let mut length = 1;
    while is_colon(length) && is_colon(length + 1) && is_ident(length + 2) {
        length += 3;
    }
    length
}

fn begins_with(tokens: &TokenStream, word: &str) -> bool {
    matches!(tokens.clone().into_iter().next(), Some(TokenTree::Ident(first)) if first == word)
}

struct Branches(Vec<Branch>);

/// A branch of a `select!`, Composer's or another.
pub(super) struct Branch {
    pub(super) pat: Option<Pat>,
    /// `else`, `complete` and `default` have none.
    pub(super) future: Option<Expr>,
    pub(super) guard: Option<Expr>,
    pub(super) code: Expr,
}

impl Parse for Branches {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if begins_with(&input.fork().parse()?, "biased") {
            input.parse::<Ident>()?;
            input.parse::<Token![;]>()?;
        }
        let mut branches = Vec::new();
        while !input.is_empty() {
            branches.push(input.parse()?);
            input.parse::<Option<Token![,]>>()?;
        }
        Ok(Self(branches))
    }
}

impl Parse for Branch {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        // `else`, or `default` and `complete` of the futures crate.
        if input.peek(Token![else]) || input.peek2(Token![=>]) {
            input.parse::<TokenTree>()?;
            input.parse::<Token![=>]>()?;
            return Ok(Self {
                pat: None,
                future: None,
                guard: None,
                code: Expr::parse_with_earlier_boundary_rule(input)?,
            });
        }
        let pat = Some(Pat::parse_multi_with_leading_vert(input)?);
        input.parse::<Token![=]>()?;
        let future = Some(input.parse()?);
        let guard = if input.peek(Token![,]) {
            input.parse::<Token![,]>()?;
            input.parse::<Token![if]>()?;
            Some(input.parse()?)
        } else {
            None
        };
        input.parse::<Token![=>]>()?;
        Ok(Self { pat, future, guard, code: Expr::parse_with_earlier_boundary_rule(input)? })
    }
}
