//! A world for one run, in memory: it carries commands out in a random order and keeps the journal.

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use composer_sdk::{
    Activity, Call, Workflow,
    activity::{ActivityCx, ActivityEntry, ActivityInfo, Attempted, States},
    id::{RunId, Timestamp},
    journal::{Entry, Event, Outcome, Step},
    payload::Payload,
    replay::{Command, Finished, FinishedStatus, Machine, Progress, Start, StuckReason},
    workflow::WorkflowEntry,
};

/// A small generator: `SplitMix64`.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((z ^ (z >> 27)) >> 33) as usize % n
    }
}

/// How often the alarm rang.
#[derive(Debug, Clone, Default)]
pub(crate) struct Alarm(Arc<AtomicU32>);

impl Alarm {
    pub(crate) fn rings(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

pub(crate) const STARTED: i64 = 1_700_000_000_000_000;

/// The start of the run that a call describes.
pub(crate) fn start<W: Workflow>(call: Call<W>) -> Start {
    start_with(call, &Alarm::default())
}

pub(crate) fn start_with<W: Workflow>(call: Call<W>, alarm: &Alarm) -> Start {
    let rings = alarm.0.clone();
    let run_id: RunId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
    Start {
        run_id,
        seed: run_id,
        workflow_id: run_id.into(),
        workflow: WorkflowEntry::of::<W>(),
        input: call.into_start().unwrap().input,
        started_at: Timestamp::from_micros(STARTED),
        alarm: Arc::new(move || {
            rings.fetch_add(1, Ordering::SeqCst);
        }),
    }
}

/// Carries out one attempt on this thread.
pub(crate) fn attempt(entry: ActivityEntry, step: &Step, input: &Payload, attempt: u32) -> Attempted {
    let info = ActivityInfo {
        run_id: "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap(),
        workflow_id: "id".parse().unwrap(),
        workflow: "w",
        step: step.number,
        name: entry.name,
        attempt,
        scheduled_at: Timestamp::from_micros(STARTED),
    };
    let cx = ActivityCx::new(info, Arc::new(States::default()));
    futures::executor::block_on(entry.attempt(input, cx))
}

/// What is still to be done: what a replay must come to, too.
pub(crate) type Open = BTreeMap<u32, Command>;

/// One run in its world.
pub(crate) struct Sim {
    pub(crate) start: Start,
    pub(crate) machine: Machine,
    pub(crate) journal: Vec<Entry>,
    pub(crate) open: Open,
    /// What was open after each entry of the journal, from none on.
    pub(crate) history: Vec<Open>,
    pub(crate) progress: Progress,
    /// Every command in the order in which it came.
    pub(crate) commands: Vec<Command>,
    activities: BTreeMap<&'static str, ActivityEntry>,
    random: Random,
    now: i64,
    keeps_history: bool,
}

impl Sim {
    pub(crate) fn new(start: Start, seed: u64) -> Self {
        let machine = Machine::new(start.clone());
        let mut sim = Self {
            start,
            machine,
            journal: vec![],
            open: Open::new(),
            history: vec![],
            progress: Progress::Waiting,
            commands: vec![],
            activities: BTreeMap::new(),
            random: Random(seed),
            now: STARTED,
            keeps_history: true,
        };
        sim.drive();
        sim.history.push(sim.open.clone());
        sim
    }

    pub(crate) fn of<W: Workflow>(call: Call<W>) -> Self {
        Self::new(start(call), 0)
    }

    pub(crate) fn with<A: Activity>(mut self) -> Self {
        self.activities.insert(A::NAME, ActivityEntry::of::<A>());
        self
    }

    /// For long runs whose prefixes nobody looks at.
    pub(crate) fn without_history(mut self) -> Self {
        self.keeps_history = false;
        self
    }

    /// Journals an event, feeds it, drives, and takes the commands.
    pub(crate) fn happen(&mut self, event: Event) -> &Progress {
        self.now += 1_000;
        let entry = Entry {
            seq: self.journal.len() as u32 + 1,
            at: Timestamp::from_micros(self.now),
            event: reread(event),
        };
        self.machine.feed(&entry);
        match &entry.event {
            Event::StepDone { step, .. } => {
                self.open.remove(&step.number);
            }
            Event::TimerFired { step } | Event::ChildDone { step, .. } => {
                self.open.remove(step);
            }
            Event::ChildStarted { step, run_id: child } => {
                if let Some(Command::StartChild { run_id, .. }) = self.open.get_mut(&step.number) {
                    *run_id = Some(*child);
                }
            }
            Event::AttemptFailed { step, attempt, retry_at: at, .. } => {
                if let Some(Command::RunActivity { attempts, retry_at, .. }) = self.open.get_mut(&step.number)
                {
                    (*attempts, *retry_at) = (*attempt, Some(*at));
                }
            }
            Event::RetryRequested { .. } => {
                for command in self.open.values_mut() {
                    if let Command::RunActivity { retry_at, .. } = command {
                        *retry_at = None;
                    }
                }
            }
            Event::TimerSet { step, due: at } => {
                if let Some(Command::SetTimer { due, armed, .. }) = self.open.get_mut(&step.number) {
                    (*due, *armed) = (*at, true);
                }
            }
            _ => {}
        }
        if entry.event.is_delivered() {
            self.drive();
        }
        self.journal.push(entry);
        if self.keeps_history {
            self.history.push(self.open.clone());
        }
        &self.progress
    }

    pub(crate) fn drive(&mut self) {
        self.progress = self.machine.drive();
        let commands = self.machine.take();
        assert!(commands.is_sorted_by_key(Command::step), "commands leave in step order");
        for command in &commands {
            match command {
                Command::Abandon { step, .. } => drop(self.open.remove(step)),
                command => drop(self.open.insert(command.step(), command.clone())),
            }
        }
        self.commands.extend(commands);
    }

    /// Time passes until that instant.
    pub(crate) fn until(&mut self, instant: Timestamp) {
        self.now = self.now.max(instant.as_micros());
    }

    /// One open command, carried out.
    pub(crate) fn carry_out(&mut self, step: u32) {
        match self.open[&step].clone() {
            Command::RunActivity { step, input, attempts, .. } => {
                let entry = self.activities[&*step.name];
                if self.random.below(4) == 0 {
                    self.happen(failed_attempt(&step, attempts + 1));
                }
                let Attempted { outcome, error, .. } = attempt(entry, &step, &input, attempts + 1);
                self.happen(Event::StepDone { step, attempt: attempts + 1, error, gave_up: None, outcome });
            }
            Command::Record { step, outcome, error } => {
                self.happen(Event::StepDone { step, attempt: 0, error, gave_up: None, outcome });
            }
            Command::SetTimer { step, due, armed, .. } => {
                if !armed {
                    self.happen(Event::TimerSet { step: step.clone(), due });
                }
                self.happen(Event::TimerFired { step: step.number });
            }
            // A child gives its only argument back.
            Command::StartChild { step, request, run_id, .. } => {
                if run_id.is_none() {
                    let run_id = composer_sdk::id::RunId::new(Timestamp::from_micros(self.now));
                    self.happen(Event::ChildStarted { step: step.clone(), run_id });
                }
                let input = request.input.as_bytes();
                let outcome = Outcome::Ok(Payload::from(input[1..input.len() - 1].to_vec()));
                self.happen(Event::ChildDone { step: step.number, inbox: 1, outcome });
            }
            command => panic!("{command:?} is never open"),
        }
    }

    /// Carries open commands out in a random order until nothing is open, or the run is over.
    pub(crate) fn run(mut self) -> Self {
        while self.progress == Progress::Waiting && !self.open.is_empty() {
            let n = self.random.below(self.open.len());
            let step = *self.open.keys().nth(n).unwrap();
            self.carry_out(step);
        }
        self
    }

    /// What a fresh machine comes to with the first entries of the journal.
    pub(crate) fn replay(&self, entries: usize) -> (Progress, Open, Machine) {
        let mut machine = Machine::new(self.start.clone()).resumed(entries as u32);
        let mut progress = machine.drive();
        for entry in &self.journal[..entries] {
            machine.feed(entry);
            progress = machine.drive();
        }
        let mut open = Open::new();
        for command in machine.take() {
            match command {
                Command::Abandon { step, .. } => drop(open.remove(&step)),
                command => drop(open.insert(command.step(), command)),
            }
        }
        (progress, open, machine)
    }

    /// Every prefix of the journal comes to the same open steps, and the whole to the same end.
    #[track_caller]
    pub(crate) fn check_replays(&self) {
        for entries in 0..=self.journal.len() {
            let (progress, open, _) = self.replay(entries);
            assert_eq!(open, self.history[entries], "after {entries} of {:#?}", self.journal);
            if entries < self.journal.len() {
                assert_eq!(progress, Progress::Waiting, "after {entries} of {:#?}", self.journal);
            } else {
                assert_eq!(progress, self.progress, "at the end of {:#?}", self.journal);
            }
        }
    }

    #[track_caller]
    pub(crate) fn finished(&self) -> &Finished {
        match &self.progress {
            Progress::Done(finished) => finished,
            other => panic!("not done: {other:?}"),
        }
    }

    /// The value of a completed run.
    #[track_caller]
    pub(crate) fn value<T: serde::de::DeserializeOwned>(&self) -> T {
        let finished = self.finished();
        match &finished.outcome {
            Outcome::Ok(value) if finished.status == FinishedStatus::Completed => value.decode().unwrap(),
            _ => panic!("no value: {finished:?}"),
        }
    }

    /// The reason of a stuck run, in words.
    #[track_caller]
    pub(crate) fn stuck(&self) -> String {
        stuck(&self.progress).to_string()
    }

    pub(crate) fn steps(&self) -> Vec<String> {
        self.open.values().map(describe).collect()
    }
}

#[track_caller]
pub(crate) fn stuck(progress: &Progress) -> &StuckReason {
    match progress {
        Progress::Stuck(reason) => reason,
        other => panic!("not stuck: {other:?}"),
    }
}

/// `number name` of a command.
pub(crate) fn describe(command: &Command) -> String {
    match command {
        Command::RunActivity { step, .. }
        | Command::SetTimer { step, .. }
        | Command::StartChild { step, .. }
        | Command::Record { step, .. } => {
            format!("{} {}", step.number, step.name)
        }
        Command::Abandon { step, .. } => format!("{step} abandoned"),
        _ => unreachable!(),
    }
}

pub(crate) fn failed_attempt(step: &Step, attempt: u32) -> Event {
    let retry_at = Timestamp::from_micros(STARTED + 5).saturating_add(Duration::from_secs(1));
    Event::AttemptFailed { step: step.clone(), attempt, error: "no".into(), retry_at }
}

/// What a journal makes of an event: nothing but its record reaches the machine.
fn reread(event: Event) -> Event {
    let record = event.to_record();
    Event::from_record(record.kind, &record.meta, record.payload).unwrap()
}

pub(crate) fn signal(name: &str, value: &impl serde::Serialize) -> Event {
    Event::Signal { name: name.into(), inbox: 1, payload: Payload::encode(value).unwrap() }
}

/// Runs the check over many seeds and says which one failed.
pub(crate) fn seeds(n: u64, check: impl Fn(u64)) {
    let one = std::env::var("COMPOSER_SEED").ok().map(|seed| seed.parse().unwrap());
    for seed in one.map_or(0..n, |seed| seed..seed + 1) {
        if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| check(seed))) {
            eprintln!("failed with COMPOSER_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
