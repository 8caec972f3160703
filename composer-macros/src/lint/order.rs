//! Steps in the order of a hash table.
//!
//! A `HashMap` has another order in every process. That matters only where the order decides which step comes first,
//! and is seen only where the table is a variable that the body binds: iterated by a loop that awaits, or made into
//! futures that are polled together.

use proc_macro2::Ident;
use syn::{
    Block, Expr, ExprCall, ExprMethodCall, GenericArgument, Macro, Pat, PathArguments, Type,
    visit::{self, Visit},
};

use super::names::{Holds, Names};
use crate::body;

/// Functions that poll what they are given together, in its order.
const TOGETHER: [&str; 5] = ["join_all", "try_join_all", "select_all", "select_ok", "iter"];

/// Methods that go through a table in its order.
const THROUGH: [&str; 13] = [
    "iter",
    "iter_mut",
    "into_iter",
    "keys",
    "into_keys",
    "values",
    "values_mut",
    "into_values",
    "drain",
    "union",
    "intersection",
    "difference",
    "symmetric_difference",
];

/// Methods that keep the order of what they go through.
const KEEPING: [&str; 17] = [
    "by_ref",
    "chain",
    "clone",
    "cloned",
    "copied",
    "enumerate",
    "filter",
    "filter_map",
    "flat_map",
    "inspect",
    "map",
    "peekable",
    "rev",
    "skip",
    "step_by",
    "take",
    "zip",
];

/// A table, and the expression that goes through it.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    /// The variable.
    pub(super) name: &'a Ident,
    pub(super) holds: Holds,
}

impl Table<'_> {
    pub(super) fn message(&self) -> String {
        let (table, instead) = match self.holds {
            Holds::HashSet => ("HashSet", "BTreeSet"),
            _ => ("HashMap", "BTreeMap"),
        };
        format!(
            "a `{table}` has another order when the workflow is run again after a crash, and here its order decides \
             which step comes first: make `{}` a `{instead}`, or sort what it holds before",
            self.name
        )
    }
}

/// The table that the expression goes through, in its order.
pub(super) fn source<'a>(expr: &'a Expr, names: &Names) -> Option<Table<'a>> {
    match expr {
        Expr::Group(group) => source(&group.expr, names),
        Expr::Paren(paren) => source(&paren.expr, names),
        Expr::Reference(reference) => source(&reference.expr, names),
        Expr::Path(path) => {
            let name = path.path.get_ident()?;
            let holds = names.variable(name)?;
            matches!(holds, Holds::HashMap | Holds::HashSet).then_some(Table { name, holds })
        }
        Expr::MethodCall(call) => {
            let method = call.method.to_string();
            let goes_on = THROUGH.contains(&method.as_str())
                || KEEPING.contains(&method.as_str())
                || (method == "collect" && turbofish(call).is_some_and(|ty| is(ty, "Vec")));
            if goes_on { source(&call.receiver, names) } else { None }
        }
        _ => None,
    }
}

/// Whether the function polls what it is given together.
pub(super) fn polls_together(function: &Expr) -> bool {
    let Expr::Path(path) = function else { return false };
    let segments: Vec<_> = path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    match &segments[..] {
        [.., ty, constructor] if constructor == "from_iter" => {
            ty == "FuturesUnordered" || ty == "FuturesOrdered"
        }
        [module, iter] if iter == "iter" => module == "stream",
        [.., last] => TOGETHER.contains(&last.as_str()) && last != "iter",
        [] => false,
    }
}

/// Whether a call makes futures that are polled together of what it goes through.
pub(super) fn collects_futures(call: &ExprMethodCall) -> bool {
    call.method == "collect" && turbofish(call).is_some_and(|ty| of_type(ty) == Holds::Futures)
}

/// What a variable of that type holds.
pub(super) fn of_type(ty: &Type) -> Holds {
    let Type::Path(path) = (match ty {
        Type::Reference(reference) => return of_type(&reference.elem),
        ty => ty,
    }) else {
        return Holds::Other;
    };
    let Some(last) = path.path.segments.last() else { return Holds::Other };
    let types = match &last.arguments {
        PathArguments::AngleBracketed(args) => {
            args.args.iter().filter(|arg| matches!(arg, GenericArgument::Type(_))).count()
        }
        _ => 0,
    };
    // One with a hasher of its own may have an order that stays.
    match last.ident.to_string().as_str() {
        "HashMap" if types <= 2 => Holds::HashMap,
        "HashSet" if types <= 1 => Holds::HashSet,
        "FuturesUnordered" | "FuturesOrdered" => Holds::Futures,
        _ => Holds::Other,
    }
}

/// What a variable holds that begins as this expression.
pub(super) fn of_value(expr: &Expr, names: &Names) -> Holds {
    match expr {
        Expr::Paren(paren) => of_value(&paren.expr, names),
        Expr::Path(path) => {
            path.path.get_ident().and_then(|name| names.variable(name)).unwrap_or(Holds::Other)
        }
        Expr::Call(call) => of_constructor(&call.func),
        Expr::MethodCall(call) if call.method == "collect" => turbofish(call).map_or(Holds::Other, of_type),
        Expr::MethodCall(call) if call.method == "clone" => of_value(&call.receiver, names),
        _ => Holds::Other,
    }
}

fn of_constructor(function: &Expr) -> Holds {
    let Expr::Path(path) = function else { return Holds::Other };
    let segments: Vec<_> = path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    let [.., ty, constructor] = &segments[..] else { return Holds::Other };
    let constructs = ["new", "from", "from_iter", "with_capacity", "default"].contains(&constructor.as_str());
    match ty.as_str() {
        "HashMap" if constructs => Holds::HashMap,
        "HashSet" if constructs => Holds::HashSet,
        "FuturesUnordered" | "FuturesOrdered" if constructs => Holds::Futures,
        "workflow" if constructor == "now" => Holds::Now,
        _ => Holds::Other,
    }
}

fn turbofish(call: &ExprMethodCall) -> Option<&Type> {
    match call.turbofish.as_ref()?.args.first()? {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    }
}

fn is(ty: &Type, name: &str) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == name))
}

/// The variable that a pattern binds, and its declared type.
pub(super) fn binding(pat: &Pat) -> Option<(&Ident, Option<&Type>)> {
    match pat {
        Pat::Ident(ident) => Some((&ident.ident, None)),
        Pat::Paren(paren) => binding(&paren.pat),
        Pat::Type(typed) => binding(&typed.pat).map(|(name, _)| (name, Some(&*typed.ty))),
        _ => None,
    }
}

/// Whether a block asks for steps, or puts futures where they are polled together.
pub(super) fn block_makes_steps(block: &Block, names: &Names) -> bool {
    let mut search = Search { names, found: false };
    search.visit_block(block);
    search.found
}

/// Whether an expression does.
pub(super) fn makes_steps(expr: &Expr, names: &Names) -> bool {
    let mut search = Search { names, found: false };
    search.visit_expr(expr);
    search.found
}

struct Search<'n> {
    names: &'n Names,
    found: bool,
}

impl<'ast> Visit<'ast> for Search<'_> {
    fn visit_expr(&mut self, expr: &'ast Expr) {
        self.found |= matches!(expr, Expr::Await(_));
        if !self.found {
            visit::visit_expr(self, expr);
        }
    }

    /// An undo step takes its place where it is recorded.
    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        self.found |= matches!(&*call.func, Expr::Path(path)
            if path.path.segments.last().is_some_and(|last| last.ident == "compensate"));
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        if let Expr::Path(path) = &*call.receiver
            && let Some(name) = path.path.get_ident()
            && self.names.variable(name) == Some(Holds::Futures)
            && ["push", "push_back", "push_front", "extend"].iter().any(|method| call.method == method)
        {
            self.found = true;
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.found |= body::mentions(call.tokens.clone(), "await")
            || call.path.segments.last().is_some_and(|last| body::is_prelude_macro(&last.ident));
    }

    fn visit_item(&mut self, _: &'ast syn::Item) {}
}
