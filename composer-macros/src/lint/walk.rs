//! Goes through a body and finds what [`rules`] and [`order`] know.
//!
//! Everything is visited in source order and in its scope. What stands under an allowance is found like all the rest,
//! so that it is known whether the allowance is of use.

use std::collections::HashSet;

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;
use syn::{
    Attribute, Block, Expr, ExprCall, ExprMethodCall, Item, Local, Macro, Pat, PatType, Path, Stmt,
    visit::{self, Visit},
};

use super::{
    Hit, allow,
    macros::{self, Arguments, Branch},
    names::{Holds, Names},
    order,
    rules::{self, Why},
};
use crate::attrs;

pub(super) struct Walk {
    /// What was found and not allowed, in source order.
    pub(super) hits: Vec<Hit>,
    /// Which of the allowances let something pass.
    pub(super) used: Vec<bool>,
    pub(super) refused_macros: Vec<Ident>,
    names: Names,
    /// Variables that the body hands to `join_all` or its like.
    polled_together: HashSet<String>,
    /// Allowances around the place that is looked at.
    allowed_by: Vec<usize>,
    /// Inside of what is run once, and whose value is journaled.
    recorded: bool,
    /// The expression that holds the attributes of its whole statement: the left side of `a = b`.
    holder: *const Expr,
    /// Tables that were reported, by where they stand.
    reported: Vec<*const Ident>,
}

impl Walk {
    pub(super) fn new(stmts: &[Stmt], allowances: usize) -> Self {
        let mut together = Together::default();
        stmts.iter().for_each(|stmt| together.visit_stmt(stmt));
        let mut names = Names::default();
        names.enter();
        Self {
            hits: Vec::new(),
            used: vec![false; allowances],
            refused_macros: Vec::new(),
            names,
            polled_together: together.0,
            allowed_by: Vec::new(),
            recorded: false,
            holder: std::ptr::null(),
            reported: Vec::new(),
        }
    }

    /// A parameter of the function.
    pub(super) fn bind_param(&mut self, param: &PatType) {
        self.bind(&param.pat, Some(&param.ty), None);
    }

    /// The function's statements.
    pub(super) fn body(&mut self, stmts: &[Stmt]) {
        self.scoped(|walk| {
            walk.names.declare(stmts);
            stmts.iter().for_each(|stmt| walk.visit_stmt(stmt));
        });
    }

    fn scoped(&mut self, look: impl FnOnce(&mut Self)) {
        self.names.enter();
        look(self);
        self.names.leave();
    }

    /// Looks at something whose attributes are about nothing but itself.
    fn attributed(&mut self, look: impl FnOnce(&mut Self)) {
        let around = self.allowed_by.len();
        look(self);
        self.allowed_by.truncate(around);
    }

    fn bind(&mut self, pat: &Pat, ty: Option<&syn::Type>, value: Option<&Expr>) {
        let Some((name, declared)) = order::binding(pat) else { return self.visit_pat(pat) };
        let mut holds = match (declared.or(ty), value) {
            (Some(ty), _) => order::of_type(ty),
            (None, Some(value)) => order::of_value(value, &self.names),
            (None, None) => Holds::Other,
        };
        if holds == Holds::Other && self.polled_together.contains(&name.to_string()) {
            holds = Holds::Futures;
        }
        self.visit_pat(pat);
        self.names.bind(name, holds);
    }

    /// Notes it, unless that is allowed here.
    fn hit(&mut self, at: &impl ToTokens, may_be_meant: bool, message: String) {
        // Tasks, sleeps, the network and the like are as wrong in a side effect as they are around it.
        if self.recorded && may_be_meant {
            return;
        }
        match self.allowed_by.last() {
            Some(allowed_by) => self.used[*allowed_by] = true,
            None => self.hits.push(Hit { at: at.to_token_stream(), may_be_meant, message }),
        }
    }

    /// Looks at a path that is used as a value.
    fn look_at(&mut self, path: &Path) -> Option<Why> {
        let why = rules::path(&self.names.resolve(path)?)?;
        self.hit(&bare(path), why.may_be_meant(), why.message(&shown(path)));
        Some(why)
    }

    /// A table that decides the order of steps.
    fn hit_table(&mut self, table: order::Table<'_>, at: &Expr) {
        let place: *const Ident = table.name;
        if !self.reported.contains(&place) {
            self.reported.push(place);
            self.hit(at, true, table.message());
        }
    }

    fn look_at_elapsed(&mut self, call: &ExprMethodCall) {
        let since = match &*call.receiver {
            Expr::Path(path) => match path.path.get_ident() {
                Some(name) => self.names.variable(name) == Some(Holds::Now),
                None => path.path.segments.last().is_some_and(|last| last.ident == "UNIX_EPOCH"),
            },
            receiver => order::of_value(receiver, &self.names) == Holds::Now,
        };
        if since {
            let since = match &*call.receiver {
                Expr::Path(path) => shown(&path.path),
                _ => "…".to_owned(),
            };
            self.hit(
                &call.method,
                true,
                format!(
                    "`elapsed` reads this machine's clock, which gives another time when the workflow is run again \
                     after a crash: write `workflow::now().duration_since({since})`"
                ),
            );
        }
    }

    fn look_into(&mut self, call: &Macro) {
        let reported = self.reported.len();
        match macros::arguments(call) {
            Arguments::Branches(branches) => branches.iter().for_each(|branch| self.look_at_branch(branch)),
            Arguments::Exprs(exprs) => exprs.iter().for_each(|expr| self.visit_expr(expr)),
            Arguments::Stmts(stmts) => self.body(&stmts),
            Arguments::Calls(paths) => {
                for path in &paths {
                    self.look_at(path);
                }
            }
        }
        // What was read out of the macro is gone, and something else may come to stand in its place.
        self.reported.truncate(reported);
    }

    fn look_at_branch(&mut self, branch: &Branch) {
        self.scoped(|walk| {
            branch.future.iter().for_each(|future| walk.visit_expr(future));
            branch.pat.iter().for_each(|pat| walk.visit_pat(pat));
            branch.guard.iter().for_each(|guard| walk.visit_expr(guard));
            walk.visit_expr(&branch.code);
        });
    }
}

impl<'ast> Visit<'ast> for Walk {
    fn visit_attribute(&mut self, attr: &'ast Attribute) {
        self.allowed_by.extend(allow::marked(attr));
    }

    fn visit_stmt(&mut self, stmt: &'ast Stmt) {
        let holder = match stmt {
            Stmt::Expr(expr, _) => leftmost(expr),
            _ => std::ptr::null(),
        };
        let around = std::mem::replace(&mut self.holder, holder);
        self.attributed(|walk| visit::visit_stmt(walk, stmt));
        self.holder = around;
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        if std::ptr::eq(expr, self.holder) {
            // Its attributes are those of the statement, which has not ended yet.
            visit::visit_expr(self, expr);
        } else {
            self.attributed(|walk| visit::visit_expr(walk, expr));
        }
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        self.attributed(|walk| visit::visit_field_value(walk, field));
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        self.attributed(|walk| walk.scoped(|walk| visit::visit_arm(walk, arm)));
    }

    fn visit_block(&mut self, block: &'ast Block) {
        self.body(&block.stmts);
    }

    fn visit_local(&mut self, local: &'ast Local) {
        local.attrs.iter().for_each(|attr| self.visit_attribute(attr));
        if let Some(init) = &local.init {
            visit::visit_local_init(self, init);
        }
        let value = local.init.as_ref().map(|init| &*init.expr);
        // `let set: FuturesUnordered<_> = map.keys().map(charge).collect();`
        if let Some((_, Some(ty))) = order::binding(&local.pat)
            && order::of_type(ty) == Holds::Futures
            && let Some(Expr::MethodCall(call)) = value
            && call.method == "collect"
            && let Some(table) = order::source(&call.receiver, &self.names)
        {
            self.hit_table(table, &call.receiver);
        }
        self.bind(&local.pat, None, value);
    }

    fn visit_pat_ident(&mut self, pat: &'ast syn::PatIdent) {
        self.names.bind(&pat.ident, Holds::Other);
        visit::visit_pat_ident(self, pat);
    }

    /// A type names things without doing anything.
    fn visit_type(&mut self, _: &'ast syn::Type) {}

    /// A helper in the body is part of it; everything else has a life of its own.
    fn visit_item(&mut self, item: &'ast Item) {
        let Item::Fn(function) = item else { return };
        if function.attrs.iter().any(|attr| attrs::is_ours(attr.path())) {
            return;
        }
        function.attrs.iter().for_each(|attr| self.visit_attribute(attr));
        self.scoped(|walk| {
            for input in &function.sig.inputs {
                if let syn::FnArg::Typed(param) = input {
                    walk.bind_param(param);
                }
            }
            walk.visit_block(&function.block);
        });
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        visit::visit_expr_path(self, path);
        if path.qself.is_none() {
            self.look_at(&path.path);
        }
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        call.attrs.iter().for_each(|attr| self.visit_attribute(attr));
        let (why, records) = match &*call.func {
            Expr::Path(path) if path.qself.is_none() => {
                let records = self.names.resolve(&path.path).is_some_and(|path| rules::records(&path));
                (self.look_at(&path.path), records)
            }
            function => {
                self.visit_expr(function);
                (None, false)
            }
        };
        if why.is_some_and(Why::covers_arguments) {
            return;
        }
        if order::polls_together(&call.func)
            && let Some(first) = call.args.first()
            && let Some(table) = order::source(first, &self.names)
        {
            self.hit_table(table, first);
        }
        let around = self.recorded;
        self.recorded |= records;
        call.args.iter().for_each(|arg| self.visit_expr(arg));
        self.recorded = around;
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        call.attrs.iter().for_each(|attr| self.visit_attribute(attr));
        let before = self.hits.len();
        self.visit_expr(&call.receiver);
        let receiver_is_fine = self.hits.len() == before;
        call.args.iter().for_each(|arg| self.visit_expr(arg));
        let args = call.args.len();
        // What is called on something that was refused is no place of its own.
        if call.method == "block_on" && args == 1 && receiver_is_fine {
            self.hit(&call.method, false, Why::BlockOn.message("block_on"));
        } else if call.method == "elapsed" && args == 0 {
            self.look_at_elapsed(call);
        } else if let Some(table) = order::source(&call.receiver, &self.names) {
            let steps = |arg: &Expr| matches!(arg, Expr::Closure(_)) && order::makes_steps(arg, &self.names);
            if order::collects_futures(call) || call.args.iter().any(steps) {
                self.hit_table(table, &call.receiver);
            }
        }
    }

    fn visit_expr_for_loop(&mut self, each: &'ast syn::ExprForLoop) {
        each.attrs.iter().for_each(|attr| self.visit_attribute(attr));
        self.visit_expr(&each.expr);
        if let Some(table) = order::source(&each.expr, &self.names)
            && order::block_makes_steps(&each.body, &self.names)
        {
            self.hit_table(table, &each.expr);
        }
        self.scoped(|walk| {
            walk.visit_pat(&each.pat);
            walk.visit_block(&each.body);
        });
    }

    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        self.scoped(|walk| visit::visit_expr_closure(walk, closure));
    }

    fn visit_expr_if(&mut self, branch: &'ast syn::ExprIf) {
        self.scoped(|walk| visit::visit_expr_if(walk, branch));
    }

    fn visit_expr_while(&mut self, repeat: &'ast syn::ExprWhile) {
        self.scoped(|walk| visit::visit_expr_while(walk, repeat));
    }

    /// The value comes before what it is bound to.
    fn visit_expr_let(&mut self, binding: &'ast syn::ExprLet) {
        binding.attrs.iter().for_each(|attr| self.visit_attribute(attr));
        self.visit_expr(&binding.expr);
        self.visit_pat(&binding.pat);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        let why = self.names.resolve(&call.path).and_then(|path| rules::macro_call(&path));
        if let Some(why) = why
            && !(why == Why::Unordered && macros::is_biased(call))
        {
            let name = format!("{}!", shown(&call.path));
            self.hit(&call.path, why.may_be_meant(), why.message(&name));
            self.refused_macros.extend(call.path.get_ident().cloned());
        }
        self.look_into(call);
    }
}

/// What holds the attributes of a statement.
fn leftmost(expr: &Expr) -> &Expr {
    match expr {
        Expr::Assign(assign) => leftmost(&assign.left),
        Expr::Binary(binary) => leftmost(&binary.left),
        Expr::Cast(cast) => leftmost(&cast.expr),
        expr => expr,
    }
}

/// A path as it is written, without generics.
fn shown(path: &Path) -> String {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect::<Vec<_>>().join("::")
}

/// The tokens of [`shown`].
fn bare(path: &Path) -> TokenStream {
    let mut path = path.clone();
    for segment in &mut path.segments {
        segment.arguments = syn::PathArguments::None;
    }
    path.to_token_stream()
}

/// Variables that are handed to `join_all` or its like.
#[derive(Default)]
struct Together(HashSet<String>);

impl<'ast> Visit<'ast> for Together {
    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        if order::polls_together(&call.func)
            && let Some(Expr::Path(first)) = call.args.first()
            && let Some(name) = first.path.get_ident()
        {
            self.0.insert(name.to_string());
        }
        visit::visit_expr_call(self, call);
    }
}
