//! The generic workflow.

use std::sync::atomic::{AtomicU32, Ordering};

use composer_sdk::{
    id::Timestamp,
    options::Retry,
    prelude::*,
    saga,
    workflow::{
        continue_as_new, log, map, now, poll_until, random, shield, side_effect, spawn, try_side_effect,
    },
};
use futures::future::{BoxFuture, try_join_all};
use serde_json::{Value, json};

use super::{Command, Ledger, Step};

/// The signal that [`Command::Wait`] waits for.
pub static GO: Signal<Value> = Signal::new("go");

/// The state that [`Command::Publish`] shows.
pub static STATE: Published<Value> = Published::new("state");

/// Carries out the commands one after the other and returns their values.
#[workflow]
pub async fn interpret(commands: Vec<Command>) -> Result<Vec<Value>> {
    obey(commands).await
}

/// Something happens at the effect server.
#[activity(retry(max_attempts = 20, first = "50ms", max = "500ms"), timeout = "60s")]
pub async fn effect(#[state] ledger: Ledger, name: String, value: Value) -> Result<Value> {
    ledger.effect(&name, &value).await
}

/// An activity that does not play along: it blocks a thread of the async runtime.
#[activity]
pub async fn block(#[state] ledger: Ledger, ms: u64) -> Result<u64> {
    ledger.effect("block", &json!(ms)).await?;
    std::thread::sleep(Duration::from_millis(ms));
    Ok(ms)
}

/// Three different activities at the same time.
#[workflow]
pub async fn fruit() -> Result<(String, String, String)> {
    let (pear, apple, plum) = join!(pear(), apple(), plum());
    Ok((pear?, apple?, plum?))
}

macro_rules! fruits {
    ($($name:ident)*) => { $(
        #[doc = concat!("The effect `", stringify!($name), "`.")]
        #[activity]
        pub async fn $name(#[state] ledger: Ledger) -> Result<String> {
            ledger.effect(stringify!($name), &json!(null)).await?;
            Ok(stringify!($name).into())
        }
    )* };
}
fruits! { pear apple plum }

fn obey(commands: Vec<Command>) -> BoxFuture<'static, Result<Vec<Value>>> {
    Box::pin(async move {
        let mut values = vec![];
        for command in commands {
            values.push(obey_one(command).await?);
        }
        Ok(values)
    })
}

async fn obey_one(command: Command) -> Result<Value> {
    Ok(match command {
        Command::Step(step) => call(step).await?,
        Command::Sleep { ms } => {
            sleep(Duration::from_millis(ms)).await;
            Value::Null
        }
        Command::Wait { ms: None } => GO.recv().await,
        Command::Wait { ms: Some(ms) } => {
            GO.recv_timeout(Duration::from_millis(ms)).await.unwrap_or_else(|| json!("nothing"))
        }
        Command::Race { step, ms } => select! {
            value = call(step) => value?,
            _ = sleep(Duration::from_millis(ms)) => json!("time"),
        },
        Command::Join(branches) => json!(try_join_all(branches.into_iter().map(obey)).await?),
        Command::JoinAll { name, count } => {
            let steps = (0..count).map(|n| call(super::step(format!("{name}-{n}"))));
            json!(try_join_all(steps).await?)
        }
        Command::Map { name, count, limit, tolerate } => {
            let effects = map(0..count, |n| call(super::step(format!("{name}-{n}"))));
            let effects = match limit {
                Some(limit) => effects.limit(limit),
                None => effects,
            };
            match tolerate {
                None => json!(effects.fail_fast().await?),
                Some(errors) => {
                    let settled = effects.tolerate(errors).await?;
                    let errors = settled.errors.into_iter().map(|(place, error)| (place, error.to_string()));
                    json!({ "values": settled.values, "errors": errors.collect::<Vec<_>>() })
                }
            }
        }
        Command::PollUntil { name, ms, times } => {
            let check = || async {
                call(super::step(&name)).await.map(|answer| (answer != json!(false)).then_some(answer))
            };
            let polled = poll_until(Duration::from_millis(ms), check);
            match times {
                None => polled.await?,
                Some(times) => match polled.times(times).await {
                    Ok(found) => found?,
                    Err(not_yet) => json!(not_yet.to_string()),
                },
            }
        }
        Command::Ask(name) => {
            static ASKED: AtomicU32 = AtomicU32::new(0);
            let given = side_effect(|| (std::process::id(), ASKED.fetch_add(1, Ordering::Relaxed))).await;
            effect(name, json!(given)).await?;
            json!(given)
        }
        Command::AskInVain(text) => {
            let asked = try_side_effect(|| Err::<(), _>(Error::new(text.as_str()))).await;
            json!(asked.unwrap_err().to_string())
        }
        Command::Log(text) => {
            log(format_args!("logged {text}"));
            tracing::info!("traced {text}");
            Value::Null
        }
        Command::Spawn(branches) => {
            let branches: Vec<_> = branches.into_iter().map(|branch| spawn(obey(branch))).collect();
            json!(try_join_all(branches).await?)
        }
        Command::Publish(value) => {
            STATE.set(&value);
            Value::Null
        }
        Command::Undo(step) => {
            compensate(call(step));
            Value::Null
        }
        Command::Child { commands, id, detached } => {
            let mut child = interpret(commands);
            if let Some(id) = id {
                child = child.id(id);
            }
            if detached {
                child = child.detached();
            }
            json!(child.await?)
        }
        Command::Scope(part) => match saga::scope(obey(part)).await {
            Ok(values) => json!(values),
            Err(error) => json!(error.to_string()),
        },
        Command::Shield(part) => json!(shield(obey(part)).await?),
        Command::Continue(commands) => json!(continue_as_new(interpret(commands)).await?),
        Command::Fail(text) => return Err(Error::new(text)),
        Command::Panic(text) => panic!("{text}"),
        Command::Note(name) => {
            let seen = json!([Timestamp::from(now()).as_micros(), random("kit").next_u64()]);
            effect(name, seen.clone()).await?;
            seen
        }
        Command::Block { ms } => json!(block(ms).await?),
    })
}

fn call(step: Step) -> composer_sdk::Call<effect> {
    let Step { name, value, attempts, first_ms, timeout_ms } = step;
    let mut call = effect(name, value);
    if attempts.is_some() || first_ms.is_some() {
        let first = Duration::from_millis(first_ms.unwrap_or(50));
        let retry = Retry::DEFAULT.first(first).max(first.max(Retry::DEFAULT.max)).jitter(0.0);
        call = call.retry(attempts.map_or(retry, |attempts| retry.max_attempts(attempts)));
    }
    match timeout_ms {
        Some(ms) => call.timeout(Duration::from_millis(ms)),
        None => call,
    }
}
