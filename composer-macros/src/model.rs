//! What we understood of the function. Every check of it is here, each with the span of the token that is in the way.
//!
//! A [`Model`] always comes out, together with the mistakes: with [`Shape::Sound`] the function can be expanded as it
//! is meant (also when its attribute has mistakes), otherwise the expansion is inert, and only keeps the uses of the
//! function from failing in turn.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use syn::{
    Attribute, GenericParam, Generics, ReturnType, Signature, Stmt, Visibility,
    parse::{Parse, ParseStream},
    spanned::Spanned as _,
};

use crate::{
    args::{Kind, Options},
    attrs::{self, Attrs},
    body::{self, Found},
    errors::Errors,
    lint::{self, Allowances, Checked, Taken},
    params::{self, Param, Role},
    types,
};

/// How many arguments are journaled at most: as many as the standard library's tuples have traits for.
pub(crate) const MAX_ARGUMENTS: usize = 12;

/// A function as it is written: everything but the body is understood.
pub(crate) struct Function {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    pub(crate) body: Group,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        let sig = input.parse()?;
        let body = match input.fork().parse()? {
            // What a `macro_rules!` hands on as `$body:block` comes in a group without delimiters.
            TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
                input.parse::<TokenTree>()?;
                syn::parse2(group.stream())?
            }
            _ => input.parse()?,
        };
        Ok(Self { attrs, vis, sig, body })
    }
}

/// What the expansion is made from.
pub(crate) struct Model {
    pub(crate) kind: Kind,
    pub(crate) options: Options,
    pub(crate) attrs: Attrs,
    pub(crate) vis: Visibility,
    pub(crate) ident: Ident,
    pub(crate) generics: Generics,
    pub(crate) params: Vec<Param>,
    pub(crate) output: ReturnType,
    /// A plain `fn` for a thread that may block.
    pub(crate) blocking: bool,
    pub(crate) body: Group,
    /// Bare macros of the prelude that the body uses, whose meaning is checked.
    pub(crate) prelude_macros: Vec<Ident>,
    pub(crate) shape: Shape,
    /// The signature as it was, for an inert expansion.
    pub(crate) sig: Signature,
}

/// What can be made of the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// All that it is meant to be.
    Sound,
    /// A constructor that returns a call of the declared type.
    Inert,
    /// The function as it stands, and a definition that returns nothing: its result cannot be named.
    Verbatim,
    /// The function as it stands: it is a method, where nothing can stand beside it.
    Method,
}

impl Model {
    /// The function under the attribute, and its mistakes.
    pub(crate) fn new(kind: Kind, options: Options, function: Function, errors: &mut Errors) -> Self {
        let Function { attrs, vis, sig, body } = function;
        let before = errors.len();
        let blocking = check_color(kind, &options, &sig, errors);
        check_qualifiers(kind, &sig, errors);
        let is_method = check_receiver(kind, &sig, errors);
        let before_types = errors.len();
        let params = params::read(kind, &sig, errors);
        let nameable = check_output(&sig, errors);
        // A lifetime is reported where it is used, and only otherwise where it is declared.
        let types_fine = errors.len() == before_types;
        check_generics(kind, &sig.generics, types_fine, errors);
        check_count(kind, &params, errors);
        let Taken { stripped: body, marked, allowances } = lint::take(body);
        let stmts = body::read(marked);
        let Found { mut macros, this } = stmts.as_deref().map(body::look).unwrap_or_default();
        let self_in_sig = body::mentions(quote::quote!(#sig), "Self");
        if let Some(this) = this.filter(|_| !is_method && !self_in_sig) {
            errors.at_span(this, types::SELF);
        }
        // Most likely it stands in an `impl`, where nothing can stand beside it.
        let mentions_self = this.is_some() || self_in_sig;
        let shape = match () {
            () if is_method || mentions_self => Shape::Method,
            () if !nameable || mentions_generics(&sig) => Shape::Verbatim,
            () if errors.len() > before => Shape::Inert,
            () => Shape::Sound,
        };
        // What it does is refused, not what it is: it is expanded all the same.
        let Checked { refused_macros } = check_body(kind, stmts.as_deref(), &params, &allowances, errors);
        macros.retain(|name| !refused_macros.contains(name));
        Self {
            kind,
            options,
            attrs: attrs::sort(attrs, errors),
            vis,
            ident: sig.ident.clone(),
            generics: sig.generics.clone(),
            params,
            output: sig.output.clone(),
            blocking,
            body,
            prelude_macros: macros,
            shape,
            sig,
        }
    }

    /// The journaled parameters.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &Param> {
        self.params.iter().filter(|param| param.role == Role::Argument)
    }

    /// Where that is declared; the function's name where it is not.
    pub(crate) fn output_span(&self) -> Span {
        match &self.output {
            ReturnType::Default => self.ident.span(),
            ReturnType::Type(_, ty) => ty.span(),
        }
    }

    /// What awaiting a call gives.
    pub(crate) fn output_type(&self) -> TokenStream {
        match &self.output {
            ReturnType::Default => quote::quote!(()),
            ReturnType::Type(_, ty) => quote::quote!(#ty),
        }
    }
}

/// Async or not, as the attribute says; whether it is a plain `fn`.
fn check_color(kind: Kind, options: &Options, sig: &Signature, errors: &mut Errors) -> bool {
    match (&options.blocking, &sig.asyncness) {
        (Some(blocking), Some(_)) => {
            errors.at(blocking, "`blocking` is for a plain `fn`: remove it, or remove `async`");
            false
        }
        (None, None) => {
            let message = match kind {
                Kind::Workflow => "a workflow is an `async fn`: put `async` before `fn`",
                Kind::Activity => {
                    "put `async` before `fn`; for a plain `fn` that blocks its thread write `#[activity(blocking)]`"
                }
            };
            errors.at(sig.fn_token, message);
            false
        }
        (blocking, _) => blocking.is_some(),
    }
}

fn check_qualifiers(kind: Kind, sig: &Signature, errors: &mut Errors) {
    let a = kind.a();
    if let Some(token) = &sig.constness {
        errors.at(token, format_args!("{a} runs at run time: remove `const`"));
    }
    if let syn::Safety::Unsafe(token) = &sig.safety {
        errors.at(token, format_args!("{a} is called by the engine, which cannot keep promises for you: put the `unsafe` block inside"));
    }
    if let syn::Safety::Safe(token) = &sig.safety {
        errors.at(token, "remove `safe`");
    }
    if let Some(abi) = &sig.abi {
        errors.at(abi, format_args!("{a} is called from Rust only: remove `extern`"));
    }
    if let Some(variadic) = &sig.variadic {
        errors.at(variadic.dots, "the journal needs to know each argument: take a `Vec<T>`");
    }
}

fn check_generics(kind: Kind, generics: &Generics, lifetimes: bool, errors: &mut Errors) {
    let a = kind.a();
    let mut seen = [false; 3];
    for param in &generics.params {
        let (index, message) = match param {
            GenericParam::Type(_) => (
                0,
                format!(
                    "{a} cannot be generic, since the journal needs one concrete type for each value: write one function \
                 for each type, which may call a generic helper"
                ),
            ),
            GenericParam::Const(_) => (1, format!("{a} cannot be generic: take the constant as an argument")),
            GenericParam::Lifetime(_) if !lifetimes => continue,
            GenericParam::Lifetime(_) => (
                2,
                "lifetimes cannot be named here, since arguments are read back from the journal: borrow \
                 a whole argument (`&T`), or take it by value"
                    .to_owned(),
            ),
        };
        if !std::mem::replace(&mut seen[index], true) {
            errors.at(param, message);
        }
    }
    if let Some(clause) = &generics.where_clause
        && generics.params.is_empty()
    {
        errors.at(clause.where_token, format_args!("{a} has concrete types only: remove the `where` clause"));
    }
}

/// Whether it is a method.
fn check_receiver(kind: Kind, sig: &Signature, errors: &mut Errors) -> bool {
    let Some(receiver) = sig.receiver() else { return false };
    let instead = match kind {
        Kind::Activity => "take what it needs as arguments, or as `#[state]`",
        Kind::Workflow => "take what it needs as arguments",
    };
    errors.at(
        receiver.self_token,
        format_args!("{} is a free-standing function, not a method: {instead}", kind.a()),
    );
    true
}

/// Determinism, as far as it can be seen.
fn check_body(
    kind: Kind,
    stmts: Option<&[Stmt]>,
    params: &[Param],
    allowances: &Allowances,
    errors: &mut Errors,
) -> Checked {
    match (kind, stmts) {
        (Kind::Workflow, Some(stmts)) => lint::check(stmts, params, allowances, errors),
        (Kind::Workflow, None) => Checked::default(),
        (Kind::Activity, _) => {
            lint::check_activity(allowances, errors);
            Checked::default()
        }
    }
}

fn check_count(kind: Kind, params: &[Param], errors: &mut Errors) {
    let mut arguments = params.iter().filter(|param| param.role == Role::Argument);
    if let Some(first_too_many) = arguments.nth(MAX_ARGUMENTS) {
        errors.at(
            &first_too_many.written.pat,
            format_args!(
                "{} has at most {MAX_ARGUMENTS} arguments: put some of them into a struct",
                kind.a()
            ),
        );
    }
}

/// Whether the declared result can be named outside the function.
fn check_output(sig: &Signature, errors: &mut Errors) -> bool {
    let ReturnType::Type(_, ty) = &sig.output else { return true };
    let Some(obstacle) = types::output(ty) else { return true };
    errors.at_span(obstacle.span, obstacle.message);
    false
}

/// Whether the declared result speaks of the function's generics.
fn mentions_generics(sig: &Signature) -> bool {
    let ReturnType::Type(_, ty) = &sig.output else { return false };
    let mentioned = |name: &Ident| body::mentions(quote::quote!(#ty), &name.to_string());
    sig.generics.params.iter().any(|param| match param {
        GenericParam::Type(param) => mentioned(&param.ident),
        GenericParam::Const(param) => mentioned(&param.ident),
        GenericParam::Lifetime(param) => mentioned(&param.lifetime.ident),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;

    /// Understands a function under an attribute such as `activity(blocking)`; all words must be found, one in each
    /// message, in that order.
    #[track_caller]
    fn check(attribute: &str, function: &str, words: &[&str]) -> Model {
        let (name, options) =
            attribute.split_once('(').map_or((attribute, ""), |(name, rest)| (name, &rest[..rest.len() - 1]));
        let kind = if name == "workflow" { Kind::Workflow } else { Kind::Activity };
        let mut errors = Errors::default();
        let options = args::parse(kind, options.parse().expect("the test is made of tokens"), &mut errors);
        let function = syn::parse_str(function).expect("the test is a function");
        let model = Model::new(kind, options, function, &mut errors);
        let messages = errors.messages();
        assert_eq!(messages.len(), words.len(), "{messages:#?}");
        for (message, words) in messages.iter().zip(words) {
            assert!(message.contains(words), "`{message}` does not say `{words}`");
        }
        model
    }

    #[track_caller]
    fn fine(function: &str) -> Model {
        let model = check("activity", function, &[]);
        assert_eq!(model.shape, Shape::Sound);
        model
    }

    #[track_caller]
    fn refused(function: &str, words: &[&str]) -> Shape {
        check("activity", function, words).shape
    }

    #[test]
    fn ordinary_functions_are_understood() {
        fine("async fn f() {}");
        fine(
            "pub(crate) async fn f(mut a: u8, _: B, (c, d): (C, D), Point { x, y }: Point, r#type: E,) -> Aliased { f(1).await }",
        );
        fine(
            "async fn f(o: &Order, s: &str, b: &[u8], p: &Path) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {}",
        );
        fine(
            "async fn f(#[state] db: Arc<dyn Fn(&str) -> u8 + 'static>, #[state] p: &Partner, #[cfg(unix)] a: u8) {}",
        );
        fine("async fn f() -> Cow<'static, str> {}");
        fine(&format!("async fn f({}) {{}}", "a: u8,".repeat(12)));
        check("activity(blocking)", "fn f(a: u8) -> u8 { a }", &[]);
        check("workflow(version = 2)", "async fn f(a: u8) -> u8 { a }", &[]);
    }

    #[test]
    fn parameters_have_names_for_callers_and_messages() {
        let model = fine("async fn f(mut a: u8, (b, c): (B, C), _: D, r#type: E, #[state] s: S) {}");
        let labels: Vec<_> =
            model.arguments().map(|param| (param.name.to_string(), param.label.as_str())).collect();
        let labels: Vec<_> = labels.iter().map(|(name, label)| (name.as_str(), *label)).collect();
        assert_eq!(labels, [("a", "a"), ("arg2", "#2"), ("arg3", "#3"), ("r#type", "type")]);
        assert_eq!(model.params.iter().filter(|param| param.role == Role::State).count(), 1);
    }

    #[test]
    fn async_or_not_is_what_the_attribute_says() {
        refused("fn f() {}", &["put `async` before `fn`; for a plain `fn`"]);
        check("workflow", "fn f() {}", &["a workflow is an `async fn`"]);
        check("activity(blocking)", "async fn f() {}", &["`blocking` is for a plain `fn`"]);
    }

    #[test]
    fn qualifiers_are_refused_each_at_its_token() {
        refused("const fn f() {}", &["put `async`", "remove `const`"]);
        refused("async unsafe extern \"C\" fn f() {}", &["`unsafe` block inside", "remove `extern`"]);
    }

    #[test]
    fn generics_are_refused_once_a_kind() {
        refused("async fn f<T, U>(a: T, b: U) {}", &["cannot be generic, since the journal"]);
        refused("async fn f<const N: usize>() {}", &["take the constant as an argument"]);
        refused("async fn f<T>(a: T) where T: Clone {}", &["cannot be generic, since the journal"]);
        refused("async fn f() where u8: Copy {}", &["remove the `where` clause"]);
        refused("async fn f<'a>(a: &'a str) {}", &["write `&` without `'a`"]);
        refused("async fn f<'a>(a: u8) {}", &["lifetimes cannot be named here"]);
        let shape = refused("async fn f<T>() -> T {}", &["cannot be generic"]);
        assert_eq!(shape, Shape::Verbatim, "the result speaks of `T`");
    }

    #[test]
    fn borrows_are_refused_where_they_cannot_be_read_back() {
        for ty in [
            "Option<&Order>",
            "Vec<&str>",
            "Cow<str>",
            "Cow<'_, str>",
            "Cow<'static, str>",
            "(u8, &u8)",
            "&Option<&u8>",
            "&&u8",
            "&[&str]",
        ] {
            refused(&format!("async fn f(a: {ty}) {{}}"), &["only a whole argument can be borrowed"]);
        }
        refused("async fn f(a: &mut Order) {}", &["nothing can be changed through `&mut`"]);
        refused("async fn f(a: &'static str) {}", &["write `&` without `'static`"]);
        for ty in ["&str", "Option<&'static str>", "Cow<'_, str>", "Cow<str>"] {
            refused(&format!("async fn f() -> {ty} {{}}"), &["return an owned value"]);
        }
    }

    #[test]
    fn types_that_no_journal_can_name_are_refused() {
        refused("async fn f(a: Box<dyn Shape>) {}", &["an enum of the cases"]);
        refused("async fn f(a: &dyn Shape) {}", &["an enum of the cases"]);
        refused("async fn f(a: impl Shape) {}", &["take a concrete type"]);
        refused("async fn f() -> impl Shape {}", &["return a concrete type"]);
        refused("async fn f(a: fn(u8)) {}", &["a function cannot be stored"]);
        refused("async fn f(a: *const u8) {}", &["a raw pointer"]);
        refused("async fn f(a: Vec<_>) {}", &["written out"]);
        refused("async fn f() -> ! {}", &["never comes"]);
    }

    #[test]
    fn methods_are_refused_and_left_as_they_are() {
        assert_eq!(refused("async fn f(&self, a: u8) {}", &["not a method"]), Shape::Method);
        assert_eq!(refused("async fn f(a: Self) {}", &["where `Self` has no meaning"]), Shape::Method);
        assert_eq!(
            refused("async fn f() { Self::g().await }", &["where `Self` has no meaning"]),
            Shape::Method
        );
        fine("async fn f() { struct S; impl S { fn g() -> Self { S } } }");
    }

    #[test]
    fn states_are_found_by_their_type() {
        refused("async fn f(#[state] a: &mut P) {}", &["shared by all activities"]);
        refused("async fn f(#[state] a: &dyn P) {}", &["`Arc<dyn …>` by value"]);
        refused("async fn f(#[state] a: &str) {}", &["`&String`"]);
        refused("async fn f(#[state] a: Option<&P>) {}", &["a state outlives every borrow"]);
        refused("async fn f(#[state(x)] a: P) {}", &["`#[state]` stands alone"]);
        refused("async fn f(#[state] #[state] a: P) {}", &["remove one of the two"]);
        refused("async fn f(#[stat] a: P) {}", &["did you mean `#[state]`?"]);
        refused("async fn f(#[tx] a: &mut PgConnection) {}", &["`#[tx]` is not available yet"]);
        check("workflow", "async fn f(#[state] a: P) {}", &["a workflow has no state"]);
    }

    #[test]
    fn a_thirteenth_argument_is_refused_but_states_do_not_count() {
        let many = "a: u8,".repeat(13);
        refused(&format!("async fn f({many}) {{}}"), &["at most 12 arguments"]);
        fine(&format!("async fn f({} #[state] s: S) {{}}", "a: u8,".repeat(12)));
    }

    #[test]
    fn all_mistakes_of_a_function_are_found_at_once() {
        check(
            "activity(timeuot = \"1s\")",
            "unsafe fn f<T>(a: &mut T, b: Vec<&str>) -> &str {}",
            &["`timeout`?", "put `async`", "`unsafe`", "`&mut`", "whole argument", "owned value", "generic"],
        );
    }

    #[test]
    fn prelude_macros_are_found_where_the_check_sees_what_they_mean() {
        let macros = |body: &str| {
            let model = fine(&format!("async fn f() {{ {body} }}"));
            model.prelude_macros.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(macros("select! { a = b => c }; loop { join!(a, b); select! {} }"), ["select", "join"]);
        assert_eq!(
            macros("tokio::select! {}; { use tokio::join; join!(a) }; { use x::*; try_join!(a) }"),
            [""; 0]
        );
        assert_eq!(macros("fn g() { select! {} }"), [""; 0]);
    }

    #[test]
    fn a_second_attribute_of_ours_is_refused() {
        check("activity", "#[composer_sdk::workflow] async fn f() {}", &["one workflow or one activity"]);
    }
}
