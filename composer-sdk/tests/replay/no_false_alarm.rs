//! The wake tracking never takes honest code for a wait on nothing durable or for a wake from outside: 10,000 runs of
//! everything that waits for several things at once, each with its own timing.
//!
//! A run here is as lean as can be: no activity is carried out, no record is written, and nothing is replayed, since
//! the other tests do that. What comes back after each event is either a wait or the end.

use composer_sdk::{
    Call, Workflow,
    id::Timestamp,
    journal::{Entry, Event, Outcome, Step},
    payload::Payload,
    prelude::*,
    replay::{Command, Machine, Progress},
    workflow::{map, poll_until, side_effect, spawn},
};
use futures::{StreamExt, future::join_all, stream::FuturesUnordered};

use crate::sim::{Alarm, Random, STARTED, seeds, start_with};

const RUNS: u64 = 10_000;

static GO: Signal<u32> = Signal::new("go");

#[activity]
async fn work(n: u32) -> u32 {
    n
}

#[activity]
async fn risky(n: u32) -> Result<u32> {
    Ok(n)
}

/// One run to its end, in an order that the seed decides. Some steps fail, and a signal comes now and then.
fn play(mut machine: Machine, random: &mut Random) -> Progress {
    let (mut open, mut seq): (Vec<Command>, u32) = (vec![], 0);
    let mut progress = machine.drive();
    while progress == Progress::Waiting {
        for command in machine.take() {
            match command {
                Command::Abandon { step, .. } => open.retain(|open| open.step() != step),
                command => open.push(command),
            }
        }
        let event = if open.is_empty() || random.below(8) == 0 {
            Event::Signal { name: "go".into(), inbox: i64::from(seq), payload: value(seq) }
        } else {
            match open.swap_remove(random.below(open.len())) {
                Command::RunActivity { step, .. } => {
                    let outcome = match step.name == "risky" && random.below(3) == 0 {
                        true => Outcome::Err(Payload::encode(&Error::new("no")).unwrap()),
                        false => Outcome::Ok(value(seq)),
                    };
                    done(step, outcome)
                }
                Command::Record { step, outcome, .. } => done(step, outcome),
                Command::SetTimer { step, .. } => Event::TimerFired { step: step.number },
                command => panic!("{command:?} is never open"),
            }
        };
        seq += 1;
        assert!(seq < 1_000, "it does not come to an end");
        machine.feed(&Entry { seq, at: Timestamp::from_micros(STARTED + i64::from(seq)), event });
        progress = machine.drive();
    }
    progress
}

fn value(n: u32) -> Payload {
    Payload::from(n.to_string().into_bytes())
}

fn done(step: Step, outcome: Outcome) -> Event {
    Event::StepDone { step, attempt: 1, error: String::new(), gave_up: None, outcome }
}

fn never_alarms<W: Workflow>(call: impl Fn() -> Call<W>) {
    let alarm = Alarm::default();
    let start = start_with(call(), &alarm);
    seeds(RUNS, |seed| {
        let progress = play(Machine::new(start.clone()), &mut Random(seed));
        assert!(matches!(progress, Progress::Done(_)), "{progress:?}");
        assert_eq!(alarm.rings(), 0);
    });
}

/// What each branch does: a step, a race or a wait, one after the other.
async fn branch(n: u32) -> u32 {
    let first = select! { x = work(n) => x, () = sleep(Duration::from_secs(1)) => 7 };
    match n % 3 {
        0 => first,
        1 => work(first).await,
        _ => select! { x = GO.recv() => x, x = risky(first) => x.unwrap_or(1) },
    }
}

macro_rules! never_alarms {
    ($($name:ident { $($body:tt)* })*) => { $(
        #[test]
        fn $name() {
            #[workflow]
            async fn body() -> u32 {
                $($body)*
            }
            never_alarms(body);
        }
    )* };
}

never_alarms! {
    select_ {
        let mut kept = work(1);
        let first = select! { x = &mut kept => x, x = branch(2) => x, x = GO.recv() => x };
        select! { x = branch(first) => x, x = branch(1) => x }
    }

    join_ {
        let (a, b, c) = join!(branch(1), branch(2), async { branch(0).await & branch(2).await });
        a & b & c
    }

    try_join_ {
        let both = try_join!(risky(1), async { risky(branch(2).await).await }, async { Ok(branch(1).await) });
        both.map_or(0, |(a, b, c)| a & b & c)
    }

    join_all_ {
        join_all((0..5).map(branch)).await.len() as u32
    }

    join_all_of_so_many_that_it_is_an_unordered_set {
        join_all((0..31).map(work)).await.len() as u32
    }

    futures_unordered {
        let mut set: FuturesUnordered<_> = (0..4).map(branch).collect();
        let mut count = 0;
        while let Some(n) = set.next().await {
            count += 1;
            if count < 3 {
                set.push(branch(n));
                work(n).await;
            }
        }
        count
    }

    map_ {
        let all = map(0..4, branch).await.len();
        let values = map(0..4, risky).limit(2).fail_fast().await.map_or(0, |values| values.len());
        let settled = map(0..3, async |n| risky(branch(n).await).await).limit(2).tolerate(1).await.is_ok();
        let first = map(0..4, risky).first(2).await.is_ok();
        (all + values) as u32 + u32::from(settled && first)
    }

    poll_until_ {
        let mut n = 0;
        let counted = poll_until(Duration::from_secs(1), || {
            n += 1;
            async move { branch(n).await.is_multiple_of(2).then_some(n) }
        });
        let counted = counted.times(3).await.unwrap_or(0);
        let asked = poll_until(Duration::from_secs(1), async || risky(1).await.map(|n| n > 5));
        counted + select! { x = asked => u32::from(x.is_ok()), x = branch(0) => x }
    }

    side_effects {
        let all = map(1..5, async |n| branch(side_effect(move || n).await).await).limit(2).await;
        let (a, b) = join!(side_effect(|| 1), async { work(1).await & side_effect(|| 2).await });
        all[0] & a & select! { x = branch(b) => x, x = async { side_effect(|| 3).await & branch(1).await } => x }
    }

    spawn_ {
        let (a, b) = (spawn(branch(1)), spawn(async { spawn(branch(2)).await & branch(0).await }));
        spawn(branch(2)).detach();
        let c = work(1).await;
        a.await & b.await & c
    }
}
