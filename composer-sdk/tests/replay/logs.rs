//! Lines for people: each once, whatever happens to the machine in between.

use std::sync::{Arc, Mutex};

use composer_sdk::{
    id::Timestamp,
    journal::{Entry, Event},
    prelude::*,
    replay::{Machine, Progress, Start},
    workflow::{is_replaying, log, side_effect, spawn},
};
use tracing::{Metadata, Subscriber, field::Visit, span};

use crate::sim::{STARTED, Sim, seeds, signal, start};

static GO: Signal<u32> = Signal::new("go");

#[activity]
async fn work(n: u32) -> u32 {
    n
}

/// Keeps the events of one thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    /// Those that came while `f` ran.
    fn of<T>(f: impl FnOnce() -> T) -> (T, Vec<String>) {
        let lines = Lines::default();
        let value = tracing::subscriber::with_default(lines.clone(), f);
        let lines = std::mem::take(&mut *lines.0.lock().unwrap());
        (value, lines)
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
    }
    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// The message, and the names of the other fields before it.
#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0 = match field.name() {
            "message" => format!("{value:?} {}", self.0).trim_end().to_owned(),
            name => format!("{} {name}", self.0).trim_start().to_owned(),
        };
    }
}

/// Notes in a line what becomes of it.
struct Guard(&'static str);

impl Drop for Guard {
    fn drop(&mut self) {
        log(self.0);
    }
}

#[workflow]
async fn talks() -> u32 {
    let _guard = Guard("the body is dropped");
    log("begun");
    let branch = spawn(async {
        let _guard = Guard("the branch is dropped");
        let n = work(1).await;
        log(format_args!("branch {n}"));
        side_effect(|| log("side effect")).await;
        work(2).await
    });
    for n in 3..5 {
        let got = select! { x = work(n) => x, x = GO.recv() => x };
        log(format_args!("{got} in round {n}"));
        sleep(Duration::from_secs(1)).await;
        log("slept");
    }
    let last = branch.await;
    log("the end");
    last
}

/// The lines of a machine that is given these entries, the first of which were there before, and is then dropped.
fn life(start: &Start, journal: &[Entry], recorded: Option<usize>) -> Vec<String> {
    Lines::of(|| {
        let mut machine = Machine::new(start.clone());
        if let Some(recorded) = recorded {
            machine = machine.resumed(recorded as u32);
        }
        let mut progress = machine.drive();
        for entry in journal {
            machine.feed(entry);
            progress = machine.drive();
        }
        progress
    })
    .1
}

#[test]
fn n3_each_line_is_written_once_wherever_the_run_changes_hands() {
    seeds(20, |seed| {
        let mut sim = Sim::new(start(talks()), seed).with::<work>();
        if seed % 2 == 0 {
            sim.happen(signal("go", &99));
        }
        let sim = sim.run();
        let Progress::Done(_) = &sim.progress else { panic!() };
        let whole = life(&sim.start, &sim.journal, None);
        assert_eq!(whole.iter().filter(|line| line.starts_with("slept")).count(), 2);
        assert!(whole.contains(&"side effect at".to_owned()), "{whole:?}");
        assert!(whole.last().unwrap().starts_with("the body is dropped"), "{whole:?}");
        for cut in 0..=sim.journal.len() {
            let mut lines = life(&sim.start, &sim.journal[..cut], None);
            lines.extend(life(&sim.start, &sim.journal, Some(cut)));
            // The value of a side effect that was not journaled by then is asked for again.
            let again = lines.len() - whole.len();
            let mut once = lines.clone();
            if again == 1 {
                let second = lines.iter().rposition(|line| line == "side effect at").unwrap();
                once.remove(second);
            }
            assert_eq!(once, whole, "cut after {cut} of {:#?}", sim.journal);
        }
    });
}

#[test]
fn a_line_names_its_run_and_its_place() {
    #[workflow]
    async fn body() -> u32 {
        log(format_args!("{} words", 3));
        work(1).await
    }
    let (_, lines) = Lines::of(|| Sim::of(body()));
    assert_eq!(lines, ["3 words run_id workflow at"]);
}

#[test]
fn lines_outside_a_workflow_name_no_run() {
    let (_, lines) = Lines::of(|| log("outside"));
    assert_eq!(lines, ["outside at"]);
    assert!(!is_replaying());
}

#[test]
fn it_replays_until_it_has_come_to_rest_after_the_last_entry_of_before() {
    static SEEN: Mutex<Vec<bool>> = Mutex::new(Vec::new());
    fn note() {
        SEEN.lock().unwrap().push(is_replaying());
    }
    #[workflow]
    async fn body() -> u32 {
        note();
        work(1).await;
        note();
        GO.recv().await;
        note();
        work(2).await
    }
    let mut sim = Sim::of(body()).with::<work>();
    sim.carry_out(1);
    assert_eq!(std::mem::take(&mut *SEEN.lock().unwrap()), [false, false]);
    let mut machine = sim.replay(1).2;
    assert_eq!(std::mem::take(&mut *SEEN.lock().unwrap()), [true, true]);
    let at = Timestamp::from_micros(STARTED + 9_000_000);
    machine.feed(&Entry { seq: 2, at, event: signal("go", &1) });
    assert_eq!(machine.drive(), Progress::Waiting);
    assert_eq!(std::mem::take(&mut *SEEN.lock().unwrap()), [false]);
    // A run without entries may have lived before, too.
    let _ = sim.replay(0);
    assert_eq!(std::mem::take(&mut *SEEN.lock().unwrap()), [true]);
    // Entries that are not delivered count as well.
    let Event::StepDone { step, .. } = &sim.journal[0].event else { panic!() };
    let mut machine = Machine::new(sim.start.clone()).resumed(1);
    machine.feed(&Entry { seq: 1, at, event: crate::sim::failed_attempt(step, 1) });
    let _ = machine.drive();
    machine.feed(&Entry { seq: 2, at, event: sim.journal[0].event.clone() });
    let _ = machine.drive();
    assert_eq!(std::mem::take(&mut *SEEN.lock().unwrap()), [true, false]);
}
