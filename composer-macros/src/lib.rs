//! The `#[workflow]` and `#[activity]` attributes of Composer; `composer_sdk` re-exports them.
//!
//! An attribute is read in three steps: `args` understands what stands in its brackets, `model` the function under
//! it, and `expand` writes the tokens. All mistakes are reported at once, each at the user's own token with what to
//! write instead; even then the function and its definition are written, so that one fault gives one message.
//!
//! The expansion is a thin shim over `composer_sdk::__private`; what does not fit at a glance lives there.

mod args;
mod attrs;
mod body;
mod duration;
mod errors;
mod expand;
mod lint;
mod model;
mod options;
mod params;
mod suggest;
mod types;

use args::Kind;
use errors::Errors;
use model::{Function, Model, Shape};
use proc_macro2::TokenStream;
use quote::quote;

/// Makes an async function an activity: a step with side effects, carried out at least once and journaled once.
///
/// ```
/// use composer_sdk::{Result, activity, workflow};
///
/// # #[derive(Clone, serde::Serialize, serde::Deserialize)] struct Order { id: u32 }
/// # #[derive(Clone)] struct Partner;
/// # impl Partner { async fn book(&self, _: u32) -> std::io::Result<u32> { Ok(7) } }
/// #[activity(retry(max_attempts = 5, first = "200ms"), timeout = "10s")]
/// async fn charge_card(#[state] partner: Partner, order: &Order) -> Result<u32> {
///     Ok(partner.book(order.id).await?)
/// }
///
/// #[workflow]
/// async fn buy(order: Order) -> Result<u32> {
///     charge_card(&order).await               // a durable step: journaled, retried
/// }
/// # futures::executor::block_on(async {
/// // The function itself, for tests and for plain calls.
/// assert_eq!(charge_card::run(Partner, &Order { id: 1 }).await.unwrap(), 7);
/// # });
/// ```
///
/// # What becomes of the function
///
/// `charge_card(&order)` no longer runs anything: it returns a `Call`, a value that describes the call. Awaited in a
/// workflow it is a durable step; awaited in another activity it is a plain call; anywhere else it refuses in words.
/// The arguments are taken at once, without the `#[state]` ones. Options may still be set: `.timeout(..)`,
/// `.retry(..)`, `.queue(..)`.
///
/// A type of the same name is the activity's definition: `worker.activity::<charge_card>()` registers it, and
/// `charge_card::run(..)` is the function as it was written. One `use shop::charge_card;` brings both. (So a *module*
/// of the same name cannot stand beside it: `mod charge_card; use charge_card::charge_card;` is E0255. Name modules in
/// the plural.)
///
/// The body stays what it is, with its attributes: `#[tracing::instrument]` may stand above or below. Documentation,
/// visibility, `#[deprecated]` and `#[must_use = "…"]` go to the constructor, `#[cfg]` to everything.
///
/// # Options
///
/// | key | is | without it |
/// |---|---|---|
/// | `retry(…)` | what follows a failed attempt, see below | |
/// | `timeout = "10s"` | how long one attempt may take; `"none"` for as long as it likes | `"10m"` |
/// | `total_timeout = "2h"` | how long all attempts with their delays may take | `"none"` |
/// | `queue = "partner-api"` | the task queue whose workers carry it out | in the worker that holds the run |
/// | `name = "charge"` | its name in the journal; keep the old one when you rename the function | the function's |
/// | `blocking` | it is a plain `fn` that may block its thread | it is an `async fn` |
///
/// | in `retry(…)` | is | without it |
/// |---|---|---|
/// | `max_attempts = 5` | how many attempts there are in all | 20 |
/// | `first = "200ms"` | the delay after the first failed attempt | `"200ms"` |
/// | `factor = 2.0` | what each delay is multiplied by to make the next, from 1.0 | 2.0 |
/// | `max = "60s"` | the longest delay | `"60s"` |
/// | `jitter = 1.0` | which part of a delay is random, from 0.0 to 1.0 | 1.0 |
/// | `on = is_transient` | `fn(&E) -> bool`: which errors are worth another attempt | all but permanent ones |
///
/// Spans of time are a number and one of `us`, `ms`, `s`, `m`, `h`, `d`: `"1.5s"`. Constants may stand for literals:
/// `timeout = TIMEOUT` (a `Duration`), `max_attempts = ATTEMPTS`, `queue = QUEUE`. What cannot work (no attempts,
/// shrinking delays, an unknown key) is refused by the compiler.
///
/// ```
/// # use composer_sdk::{activity, Failure};
/// #[derive(Debug, thiserror::Error, serde::Serialize, serde::Deserialize)]
/// enum ChargeError {
///     #[error("the card was declined")]
///     Declined,
///     #[error("the bank is busy")]
///     Busy,
///     #[error(transparent)]
///     Engine(#[from] Failure),            // timed out, cancelled, cannot be decoded
/// }
///
/// #[activity(retry(on = |error| matches!(error, ChargeError::Busy)))]
/// async fn charge(amount: u32) -> Result<u32, ChargeError> {
///     if amount > 100 { Err(ChargeError::Declined) } else { Ok(amount) }
/// }
///
/// /// A plain function, on a thread that may block.
/// #[activity(blocking, timeout = "none")]
/// fn render(pages: &[String]) -> Vec<u8> {
///     pages.concat().into_bytes()
/// }
/// ```
///
/// # Parameters
///
/// Up to 12 arguments, in any pattern. They are stored in the journal, so their types need
/// `#[derive(serde::Serialize, serde::Deserialize)]`. A whole argument may be borrowed (`&Order`, `&str`, `&[u32]`)
/// and then needs neither `Clone` nor a size; parts of one may not (`Option<&Order>`). A last `Option` parameter may be
/// added while runs are open.
///
/// `#[state]` parameters come from the worker (`worker.state(Partner::new())`) and are found by their type, which is
/// `Clone` (an `Arc`, a pool) or borrowed (`#[state] partner: &Partner`). A worker that lacks one does not start.
///
/// # Result
///
/// What is awaited has the declared type, whether that is `()`, a value, a `Result`, or an alias of one. An error that
/// is returned is retried, unless it is permanent. Its type needs a place for what only the engine can say
/// (`#[from] composer_sdk::Failure`); `composer_sdk::Result<T>` takes any error with `?`, and `anyhow::Error`, boxed
/// errors and `String` work, too. A function without a `Result` has nowhere to put such a failure, so it fails the run.
///
/// # What is refused
///
/// Generics, named lifetimes, `impl Trait`, `dyn` arguments, `&mut`, methods: all that the journal could not name or
/// read back. Each has a message that says what to write instead, and all of a function come at once. Only a function
/// without `self` in an `impl` looks like a free-standing one, and is refused in the compiler's words ("struct is not
/// supported in `impl`s").
#[proc_macro_attribute]
pub fn activity(args: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    attribute(Kind::Activity, args.into(), item.into()).into()
}

/// Makes an async function a workflow: code that survives the death of its process.
///
/// ```
/// use composer_sdk::prelude::*;
///
/// #[activity]
/// async fn reserve(order: u32) -> Result<u32> {
///     Ok(order * 10)
/// }
///
/// #[activity]
/// async fn check_stock(order: u32) -> Result<u32> {
///     Ok(order)
/// }
///
/// #[workflow]
/// async fn buy_package(order: u32) -> Result<u32> {
///     let (reserved, stock) = join!(reserve(order), check_stock(order));   // two steps at once
///     sleep(Duration::from_secs(86_400)).await;                           // a row, not a thread
///     let nested = ship(reserved?, stock?).await?;                        // a child workflow
///     Ok(nested)
/// }
///
/// #[workflow(version = 2)]
/// async fn ship(reserved: u32, stock: u32) -> Result<u32> {
///     Ok(reserved + stock)
/// }
/// ```
///
/// Every awaited call is a step whose result is journaled. After a crash another worker runs the function again from
/// its first line and gives it the journaled results, so it must do the same things in the same order: what looks at
/// the world (clocks, random numbers, files, the network) belongs into activities. The well-known ways of doing so are
/// refused, see below.
///
/// `buy_package(5)` returns a `Call`: awaited in a workflow it is a child, given to a client it is a start. The type of
/// the same name is the definition: `worker.workflow::<buy_package>()`. Arguments, results and what is refused are as
/// with [`activity`](macro@activity); there is no `#[state]`, since a replay would not see the same.
///
/// # Options
///
/// | key | is | without it |
/// |---|---|---|
/// | `name = "buy"` | its name in the journal; keep the old one when you rename the function | the function's |
/// | `version = 2` | a number for people and for telling builds apart: `<buy_package as Workflow>::VERSION` | 0 |
///
/// # What would break a replay is refused
///
/// The attribute goes through the body, with its closures, `async` blocks and the arguments of macros, and what a
/// replay would not repeat is an error at its place, with what to write instead:
///
/// | what | instead |
/// |---|---|
/// | `SystemTime::now`, `Instant::now`, `Utc::now`, `Local::now`, `OffsetDateTime::now_utc`, … | `workflow::now()` |
/// | `rand::random`, `rand::rng`, `thread_rng`, `fastrand`, `getrandom`, … | `workflow::random("name")` |
/// | `Uuid::new_v4`, `Uuid::now_v7`, … | `workflow::uuid()` |
/// | `tokio::time::sleep`, `timeout`, `interval`, `thread::sleep` | `sleep`, `select!` with a `sleep` |
/// | `tokio::spawn`, `tokio::task`, `JoinSet`, `thread::spawn` | `join!`, `workflow::spawn`, `workflow::map`, an activity |
/// | `tokio::select!` without `biased;`, `futures::select!` | `select!` |
/// | `block_on` | `.await` |
/// | files, the environment, programs, standard input | an activity; for a quick look `workflow::side_effect` |
/// | `reqwest`, `ureq`, `hyper`, sockets, `sqlx` and other databases | an activity |
/// | steps in the order of a `HashMap` or `HashSet` | `BTreeMap`, `BTreeSet`, or sort first |
///
/// In the closure of `workflow::side_effect(|| …)` the clock, random numbers, ids, files and the environment may be asked:
/// it runs once, and its value is journaled.
///
/// Only the function's own text is seen, and names as they are written: not what a helper does, and not what a bare
/// `sleep` means that stands for tokio's outside the function. What is missed here is noticed when the workflow runs,
/// as far as it can be.
///
/// Where one of these is meant, say why at the statement or expression. The reason may not be empty, and an attribute
/// that lets nothing pass is refused, too:
///
/// ```
/// # use composer_sdk::prelude::*;
/// #[workflow]
/// async fn import(files: Vec<String>) -> Result<usize> {
///     #[allow_nondeterminism = "it is only logged, and no step depends on it"]
///     let began = std::time::Instant::now();
///     // …
///     println!("this process began {:?} ago", began.elapsed());
///     Ok(files.len())
/// }
/// ```
///
/// # `select!` and `join!` of other crates
///
/// tokio and futures have macros of these names, and an import of theirs wins over the prelude without a word. Where a
/// body uses a bare `select!`, `join!` or `try_join!`, the attribute checks that it is Composer's. With tokio's the
/// error is "no rules expected `"this `select!` is another crate's, …"`", with others "no rules expected `@`" or
/// "expected an expression": import `composer_sdk::prelude::*` and remove the other `use`.
#[proc_macro_attribute]
pub fn workflow(args: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    attribute(Kind::Workflow, args.into(), item.into()).into()
}

/// Parse, model, expand; all mistakes at once, and the function all the same.
fn attribute(kind: Kind, args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let function = match syn::parse2::<Function>(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            let error = not_a_function(kind, &item).unwrap_or(error).to_compile_error();
            return quote!(#error #item);
        }
    };
    let options = args::parse(kind, args, &mut errors);
    let model = Model::new(kind, options, function, &mut errors);
    let items = match model.shape {
        Shape::Sound => expand::sound(&model),
        Shape::Inert => expand::inert::call(&model),
        Shape::Verbatim => expand::inert::verbatim(&model),
        Shape::Method => expand::inert::function(&model),
    };
    let errors = compile_errors(&model, &errors);
    quote!(#errors #items)
}

/// The mistakes; as much a part of the build as the function is.
fn compile_errors(model: &Model, errors: &Errors) -> TokenStream {
    let cfgs: Vec<_> = model.attrs.all.iter().filter(|attr| attrs::is_cfg(attr)).collect();
    let errors = errors.to_compile_errors();
    if errors.is_empty() || cfgs.is_empty() || model.shape == Shape::Method {
        return errors;
    }
    quote!(#(#cfgs)* const _: () = { #errors };)
}

/// What else it is, if it is something else.
fn not_a_function(kind: Kind, item: &TokenStream) -> Option<syn::Error> {
    let name = kind.attribute();
    let message = match syn::parse2::<syn::Item>(item.clone()).ok()? {
        syn::Item::Fn(_) => return None,
        syn::Item::Impl(_) | syn::Item::Trait(_) => {
            format!("`#[{name}]` goes on a free-standing `async fn`, not on an `impl` or a `trait`")
        }
        _ => format!("`#[{name}]` goes on an `async fn`"),
    };
    let first = item.clone().into_iter().next();
    Some(syn::Error::new_spanned(first, message))
}
