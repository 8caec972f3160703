//! What may stand in `#[workflow(…)]` and `#[activity(…)]`.
//!
//! Every mistake is noted at its own token and reading goes on, so that the rest is still understood: unknown keys
//! (with the key that was probably meant), doubled and contradictory ones, values that cannot work. What is written
//! as a constant expression instead of a literal is left to the compiler, which checks it where it is expanded.

mod values;

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use syn::{
    Expr, Ident, LitInt, LitStr, Token,
    ext::IdentExt as _,
    parse::{ParseStream, Parser as _},
};

use crate::{duration, errors::Errors, suggest};

/// Which of the two attributes it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Workflow,
    Activity,
}

impl Kind {
    /// The attribute's name.
    pub(crate) fn attribute(self) -> &'static str {
        match self {
            Kind::Workflow => "workflow",
            Kind::Activity => "activity",
        }
    }

    /// With its article, for sentences.
    pub(crate) fn a(self) -> &'static str {
        match self {
            Kind::Workflow => "a workflow",
            Kind::Activity => "an activity",
        }
    }

    fn keys(self) -> &'static [&'static str] {
        match self {
            Kind::Workflow => &["name", "version"],
            Kind::Activity => &["retry", "timeout", "total_timeout", "name", "queue", "blocking"],
        }
    }
}

/// What the attribute says.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) name: Option<LitStr>,
    pub(crate) version: Option<LitInt>,
    pub(crate) queue: Option<Expr>,
    pub(crate) timeout: Option<Limit>,
    pub(crate) total_timeout: Option<Limit>,
    pub(crate) retry: Option<Retry>,
    pub(crate) blocking: Option<Ident>,
}

/// A timeout.
#[derive(Debug)]
pub(crate) enum Limit {
    /// `"none"`.
    None,
    After(Value<Duration>),
}

/// A retry policy: what is not said keeps its default.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    pub(crate) max_attempts: Option<Value<u32>>,
    pub(crate) first: Option<Value<Duration>>,
    pub(crate) factor: Option<Value<f64>>,
    pub(crate) max: Option<Value<Duration>>,
    pub(crate) jitter: Option<Value<f64>>,
    pub(crate) on: Option<Expr>,
}

const RETRY_KEYS: [&str; 6] = ["max_attempts", "first", "factor", "max", "jitter", "on"];

/// A value as written.
#[derive(Debug)]
pub(crate) enum Value<T> {
    /// Known and checked here.
    Literal(T, Span),
    /// A constant that only the compiler knows.
    Constant(Expr),
}

/// Reads the attribute's tokens; notes each mistake and keeps what is right.
pub(crate) fn parse(kind: Kind, tokens: TokenStream, errors: &mut Errors) -> Options {
    let mut options = Options::default();
    for key in keys(tokens, errors) {
        options.take(kind, key, errors);
    }
    options.check(errors);
    options
}

impl Options {
    fn take(&mut self, kind: Kind, key: Key, errors: &mut Errors) {
        if !kind.keys().contains(&key.text.as_str()) {
            return errors.at(&key.ident, unknown_option(kind, &key.text));
        }
        match key.text.as_str() {
            "name" => set(&mut self.name, key, errors, values::name),
            "version" => set(&mut self.version, key, errors, values::version),
            "queue" => set(&mut self.queue, key, errors, values::queue),
            "timeout" => set(&mut self.timeout, key, errors, values::limit),
            "total_timeout" => set(&mut self.total_timeout, key, errors, values::limit),
            "blocking" => set(&mut self.blocking, key, errors, values::flag),
            "retry" => {
                if let Some(key) = once(&self.retry, key, errors) {
                    let read = retry(key, errors);
                    self.retry = errors.ok(read);
                }
            }
            other => unreachable!("`{other}` is in the list of keys"),
        }
    }

    /// What only both timeouts together show.
    fn check(&self, errors: &mut Errors) {
        if let (Some(Limit::After(Value::Literal(one, span))), Some(Limit::After(Value::Literal(all, _)))) =
            (&self.timeout, &self.total_timeout)
            && one > all
        {
            let (one, all) = (duration::show(*one), duration::show(*all));
            errors.at_span(
                *span,
                format_args!("one attempt may take longer (`timeout`, {one}) than all together (`total_timeout`, {all})"),
            );
        }
    }
}

/// A key with what follows it.
struct Key {
    ident: Ident,
    text: String,
    form: Form,
}

enum Form {
    /// `key`
    Alone,
    /// `key = expression`
    Is(Expr),
    /// `key(…)`
    List(TokenStream),
}

/// The keys in a list, up to the first place that is no list of keys.
fn keys(tokens: TokenStream, errors: &mut Errors) -> Vec<Key> {
    let mut keys = Vec::new();
    let read = |input: ParseStream<'_>| {
        while !input.is_empty() {
            keys.push(key(input)?);
            if !input.is_empty() {
                input
                    .parse::<Token![,]>()
                    .map_err(|error| syn::Error::new(error.span(), "a comma is missing here"))?;
            }
        }
        Ok(())
    };
    errors.ok(read.parse2(tokens));
    keys
}

fn key(input: ParseStream<'_>) -> syn::Result<Key> {
    let ident = Ident::parse_any(input).map_err(|error| {
        syn::Error::new(
            error.span(),
            "here stands a key, such as `name = \"…\"`, separated from the next by a comma",
        )
    })?;
    let form = if input.peek(Token![=]) {
        input.parse::<Token![=]>()?;
        Form::Is(value(&ident, input)?)
    } else if input.peek(syn::token::Paren) {
        let list;
        syn::parenthesized!(list in input);
        Form::List(list.parse()?)
    } else if input.peek(Token![:]) {
        return Err(input.error(format_args!("write `{ident} = …`")));
    } else {
        Form::Alone
    };
    Ok(Key { text: ident.unraw().to_string(), ident, form })
}

fn value(key: &Ident, input: ParseStream<'_>) -> syn::Result<Expr> {
    if input.is_empty() || input.peek(Token![,]) {
        return Err(syn::Error::new_spanned(key, format_args!("`{key} =` has no value")));
    }
    input.parse()
}

/// Reads a key's value into its place, which must be empty.
fn set<T>(place: &mut Option<T>, key: Key, errors: &mut Errors, read: fn(Key) -> syn::Result<T>) {
    if let Some(key) = once(place, key, errors) {
        *place = errors.ok(read(key));
    }
}

/// The key, if its place is empty.
fn once<T>(place: &Option<T>, key: Key, errors: &mut Errors) -> Option<Key> {
    if place.is_none() {
        return Some(key);
    }
    errors.at(&key.ident, format_args!("`{}` is said twice", key.text));
    None
}

impl Key {
    /// The expression after `=`.
    fn expr(self, example: &str) -> syn::Result<Expr> {
        match self.form {
            Form::Is(expr) => Ok(values::ungroup(expr)),
            Form::Alone | Form::List(_) => Err(self.expects(example)),
        }
    }

    fn expects(&self, example: &str) -> syn::Error {
        syn::Error::new_spanned(&self.ident, format_args!("write `{example}`"))
    }
}

fn retry(key: Key, errors: &mut Errors) -> syn::Result<Retry> {
    const EXAMPLE: &str = "retry(max_attempts = 5, first = \"200ms\")";
    let tokens = match key.form {
        Form::List(ref tokens) if !tokens.is_empty() => tokens.clone(),
        _ => return Err(key.expects(EXAMPLE)),
    };
    let (mut retry, before) = (Retry::default(), errors.len());
    for key in keys(tokens, errors) {
        match key.text.as_str() {
            "max_attempts" => set(&mut retry.max_attempts, key, errors, values::max_attempts),
            "first" => set(&mut retry.first, key, errors, |key| values::delay(key, "200ms")),
            "max" => set(&mut retry.max, key, errors, |key| values::delay(key, "60s")),
            "factor" => set(&mut retry.factor, key, errors, values::factor),
            "jitter" => set(&mut retry.jitter, key, errors, values::jitter),
            "on" => set(&mut retry.on, key, errors, |key| key.expr("on = is_transient")),
            other => errors.at(&key.ident, suggest::unknown("retry", other, &RETRY_KEYS)),
        }
    }
    retry.check(errors);
    if errors.len() > before {
        // What is left of a broken policy may be broken, too, and the compiler would say so once more.
        retry = Retry { on: retry.on, ..Retry::default() };
    }
    Ok(retry)
}

impl Retry {
    /// The default of `max`, for what only `first` and `max` together show; the sdk's own default is the same.
    pub(crate) const DEFAULT_MAX: Duration = Duration::from_secs(60);

    fn check(&self, errors: &mut Errors) {
        self.check_delays(errors);
        if let Some(Value::Literal(1, span)) = self.max_attempts
            && (self.first.is_some() || self.factor.is_some() || self.max.is_some() || self.jitter.is_some())
        {
            errors.at_span(
                span,
                "with one attempt there is no delay: remove the other settings, or allow more attempts",
            );
        }
    }

    fn check_delays(&self, errors: &mut Errors) {
        let Some(Value::Literal(first, first_span)) = self.first else { return };
        let (max, span, whose) = match self.max {
            Some(Value::Literal(max, span)) => (max, span, ""),
            Some(Value::Constant(_)) => return,
            None => (Self::DEFAULT_MAX, first_span, " by default: set `max`, too"),
        };
        if first > max {
            let (first, max) = (duration::show(first), duration::show(max));
            errors.at_span(
                span,
                format_args!("the first delay ({first}) is longer than the longest (`max`, {max}{whose})"),
            );
        }
    }
}

/// A key that is not known here, but perhaps at the other attribute.
fn unknown_option(kind: Kind, key: &str) -> String {
    match (kind, key) {
        (Kind::Activity, "version") => "`version` belongs to `#[workflow]`: activities have none".into(),
        (Kind::Workflow, "timeout" | "total_timeout") => {
            format!("`{key}` belongs to `#[activity]`; a run's own limit is given when it is started")
        }
        (Kind::Workflow, "retry" | "queue" | "blocking") => {
            format!("`{key}` belongs to `#[activity]`: a workflow is replayed, not retried or queued")
        }
        (Kind::Activity, key) if RETRY_KEYS.contains(&key) => {
            format!("`{key}` belongs inside: `retry({key} = …)`")
        }
        (kind, key) => suggest::unknown(kind.attribute(), key, kind.keys()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the attribute's text; all words must be found, one in each message, in that order.
    #[track_caller]
    fn check(kind: Kind, text: &str, words: &[&str]) -> Options {
        let mut errors = Errors::default();
        let options = parse(kind, text.parse().expect("the test is made of tokens"), &mut errors);
        let messages = errors.messages();
        assert_eq!(messages.len(), words.len(), "{text}: {messages:#?}");
        for (message, words) in messages.iter().zip(words) {
            assert!(message.contains(words), "{text}: `{message}` does not say `{words}`");
        }
        options
    }

    #[track_caller]
    fn activity(text: &str, words: &[&str]) -> Options {
        check(Kind::Activity, text, words)
    }

    fn seconds(value: &Option<Value<Duration>>) -> f64 {
        match value {
            Some(Value::Literal(duration, _)) => duration.as_secs_f64(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_option_is_understood() {
        let options = activity(
            r#"retry(max_attempts = 5, first = "200ms", factor = 2, max = "1.5s", jitter = 0.5, on = is_transient),
               timeout = "none", total_timeout = "2h", name = "charge", queue = QUEUE, blocking,"#,
            &[],
        );
        let retry = options.retry.unwrap();
        assert!(matches!(retry.max_attempts, Some(Value::Literal(5, _))));
        assert_eq!((seconds(&retry.first), seconds(&retry.max)), (0.2, 1.5));
        assert!(matches!(retry.factor, Some(Value::Literal(2.0, _))) && retry.on.is_some());
        assert!(matches!(options.timeout, Some(Limit::None)) && options.blocking.is_some());
        assert!(check(Kind::Workflow, r#"name = "buy", version = 3"#, &[]).version.is_some());
        activity("", &[]);
    }

    #[test]
    fn constants_are_left_to_the_compiler() {
        activity(
            "retry(max_attempts = MAX, first = limits::FIRST, factor = 1.0 + X), timeout = TIMEOUT",
            &[],
        );
    }

    #[test]
    fn unknown_keys_say_which_one_was_meant() {
        activity("retries(max_attempts = 3)", &["did you mean `retry`?"]);
        activity("timeuot = \"1s\"", &["did you mean `timeout`?"]);
        activity("task_queue = \"x\"", &["did you mean `queue`?"]);
        activity("colour = 1", &["it knows `retry`, `timeout`"]);
        activity("max_attempts = 3", &["belongs inside: `retry(max_attempts = …)`"]);
        activity("version = 2", &["belongs to `#[workflow]`"]);
        activity("retry(attempts = 3)", &["did you mean `max_attempts`?"]);
        activity("retry(delay = 3)", &["`retry` knows no `delay`: it knows `max_attempts`"]);
        check(Kind::Workflow, "timeout = \"1s\"", &["given when it is started"]);
        check(Kind::Workflow, "blocking", &["belongs to `#[activity]`"]);
        check(Kind::Workflow, "nmae = \"x\"", &["did you mean `name`?"]);
    }

    #[test]
    fn all_mistakes_are_found_at_once() {
        activity(
            r#"nome = "x", timeout = 10, timeout = "5s", queue = "", retry(max_attempts = 0, max_attempts = 1)"#,
            &["did you mean `name`?", "write `timeout = \"10s\"`", "must not be empty", "no attempt at all"],
        );
        activity(r#"timeout = "1s", timeout = "2s""#, &["`timeout` is said twice"]);
        activity(
            "retry(jitter = 1, jitter = 1), retry(factor = 2)",
            &["`jitter` is said twice", "`retry` is said twice"],
        );
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        activity(r#"timeout = "10s", total_timeout = "5s""#, &["longer (`timeout`, 10s) than all together"]);
        activity(
            r#"retry(first = "10s", max = "1s")"#,
            &["the first delay (10s) is longer than the longest (`max`, 1s)"],
        );
        activity(r#"retry(first = "5m")"#, &["(`max`, 1m by default: set `max`, too)"]);
        activity(r#"retry(max_attempts = 1, first = "1s")"#, &["with one attempt there is no delay"]);
        activity(r#"timeout = "10s", total_timeout = "none", retry(max_attempts = 1)"#, &[]);
    }

    #[test]
    fn values_that_cannot_work_are_refused() {
        activity("retry(factor = 0.5)", &["from 1.0 on"]);
        activity("retry(factor = 1e999)", &["from 1.0 on"]);
        activity("retry(jitter = 1.5)", &["from 0.0 (none) to 1.0"]);
        activity("retry(jitter = -1)", &["from 0.0 (none) to 1.0"]);
        activity("retry(max_attempts = 2.5)", &["a whole number"]);
        activity("retry(max_attempts = -1)", &["a whole number"]);
        activity("retry(max_attempts = \"3\")", &["a whole number"]);
        activity("retry(max_attempts = 5000000000)", &["a whole number"]);
        activity("timeout = \"0s\"", &["`timeout = \"none\"` means no limit"]);
        activity("timeout = \"soon\"", &["a number and a unit"]);
        activity("timeout = 1.5", &["write `timeout = \"1.5s\"`"]);
        activity("timeout = true", &["write `timeout = \"10s\"`"]);
        activity("name = NAME", &["a name is a literal text"]);
        activity("name = \"a\\nb\"", &["no line breaks"]);
        activity("name = \" a\"", &["neither begins nor ends with a space"]);
        activity("queue = 5", &["a queue is a text"]);
        check(Kind::Workflow, "version = 0", &["from 1 on"]);
        check(Kind::Workflow, "version = \"1\"", &["from 1 on"]);
    }

    #[test]
    fn the_form_of_each_key_is_said() {
        activity("retry", &["write `retry(max_attempts = 5"]);
        activity("retry()", &["write `retry(max_attempts = 5"]);
        activity("retry = 5", &["write `retry(max_attempts = 5"]);
        activity("timeout(\"5s\")", &["write `timeout = \"10s\"`"]);
        activity("blocking = true", &["stands alone"]);
        activity("name", &["write `name = \"charge_card\"`"]);
        activity("name =", &["`name =` has no value"]);
        activity("name: \"x\"", &["write `name = …`"]);
        activity("\"charge\"", &["here stands a key"]);
        activity("blocking name = \"x\"", &["a comma is missing"]);
    }
}
