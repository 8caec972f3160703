//! The world of one scenario, and the look around at its end.

use std::sync::Arc;

use composer_runtime::{Composer, RunFilter, RunHandle, Status, Worker, WorkerBuilder, store::Suspects};
use composer_sdk::id::Timestamp;
use composer_tests::kit::{self, Setup, workflow::interpret};
use futures::future::BoxFuture;

use super::{Effects, Process};
use crate::support::{Database, eventually};

/// A database, an effect server, and the words for everything else.
pub(crate) struct World {
    db: Arc<dyn Database>,
    /// How workers are set up here unless the scenario says otherwise.
    pub(crate) setup: Setup,
    /// The effect server.
    pub(crate) effects: Effects,
}

/// A scenario on both stores: the body, over a `&World`, becomes two tests.
macro_rules! scenario {
    ($(#[$doc:meta])* async fn $name:ident($world:ident) $body:block) => {
        $(#[$doc])*
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            async fn scenario($world: &$crate::scenarios::World) $body

            #[test]
            fn postgres() {
                $crate::support::postgres::with_database(|db| Box::pin(async move {
                    let url = db.url();
                    let schema = $crate::support::postgres::SCHEMA;
                    $crate::scenarios::World::play(db, url, schema, |world| Box::pin(scenario(world))).await;
                }));
            }

            #[test]
            fn sqlite() {
                $crate::support::sqlite::with_database(|db| Box::pin(async move {
                    let url = db.url();
                    $crate::scenarios::World::play(db, url, "composer", |world| Box::pin(scenario(world))).await;
                }));
            }
        }
    };
}
pub(crate) use scenario;

impl World {
    /// Plays a scenario in a world of its own, and looks around at the end.
    pub(crate) async fn play(
        db: Arc<dyn Database>,
        url: String,
        schema: &str,
        scenario: impl for<'a> FnOnce(&'a World) -> BoxFuture<'a, ()>,
    ) {
        kit::log::init();
        let effects = Effects::start().await;
        let setup = Setup { url, schema: schema.into(), effects: effects.url().into(), ..Setup::default() };
        let world = World { db, setup, effects };
        scenario(&world).await;
        world.look_around().await;
    }

    /// The database, for what only a raw hand can see.
    pub(crate) fn db(&self) -> &dyn Database {
        &*self.db
    }

    /// A client of its own, as another process would have.
    pub(crate) async fn composer(&self) -> Composer {
        kit::composer(&self.setup).await.expect("the test's database can be used")
    }

    /// A worker inside the test, with the kit's workflows; the scenario adds its own.
    pub(crate) async fn worker(&self) -> WorkerBuilder {
        kit::worker(&self.composer().await, &self.setup)
    }

    /// The same, at work.
    pub(crate) async fn at_work(&self) -> Worker {
        self.worker().await.start().await.expect("a worker can start")
    }

    /// A process at work.
    pub(crate) fn process(&self) -> Process {
        Process::spawn(&self.setup)
    }

    /// A process that is set up in another way.
    pub(crate) fn process_with(&self, change: impl FnOnce(&mut Setup)) -> Process {
        let mut setup = self.setup.clone();
        change(&mut setup);
        Process::spawn(&setup)
    }

    /// Waits until the database's clock is there.
    pub(crate) async fn until(&self, instant: Timestamp) {
        let store = self.db.store();
        loop {
            let now = store.now().await.expect("the database tells the time");
            if now >= instant {
                return;
            }
            tokio::time::sleep(instant.since(now)).await;
        }
    }

    /// No run is left behind: none is owned, no message waits for a closed one, and every journal can be read.
    pub(crate) async fn look_around(&self) {
        let composer = self.composer().await;
        let count = async |what: &str, sql: &str| {
            let sql = format!("select count(*) from {sql}");
            eventually(what, async || (self.db.number(&sql).await == Some(0)).then_some(())).await;
        };
        count("no run is left owned", "{s}runs where status = 2").await;
        count("no message is without its run", "{s}inbox where run_id not in (select run_id from {s}runs)")
            .await;
        // What no worker has come to any more, the pass that workers make puts aside.
        self.db.store().sweep(&mut Suspects::default()).await.expect("the sweep succeeds");
        count(
            "no message waits for a closed run",
            "{s}inbox i join {s}runs r on r.run_id = i.run_id where r.status >= 5 \
             and cast(i.shelved as integer) = 0",
        )
        .await;
        let mut before = None;
        loop {
            let page = composer.list(&RunFilter::default(), before).await.expect("runs can be listed");
            for row in &page {
                let run =
                    composer.get_json(row.workflow_id.as_str()).await.expect("a listed run can be found");
                // An id that was used again names the newest run only.
                if run.run_id() == row.run_id {
                    check_journal(&run, row.status).await;
                }
            }
            match page.last() {
                Some(last) => before = Some(last.run_id),
                None => return,
            }
        }
    }
}

/// The journal begins with the start, has its entries in order without gaps, and ends as the run did.
pub(crate) async fn check_journal<W>(run: &RunHandle<W>, status: Status) {
    let lines = run.journal().await.expect("a journal can be read");
    assert_eq!(lines[0].kind, "started");
    let mut seqs: Vec<u32> = lines.iter().filter_map(|line| line.seq).collect();
    seqs.dedup();
    // Of past generations only the last one is kept.
    let first = lines.get(1).filter(|line| line.kind == "continued").and_then(|line| line.seq).unwrap_or(1);
    let wanted: Vec<u32> = std::iter::once(0).chain(first..).take(seqs.len()).collect();
    assert_eq!(seqs, wanted, "a journal has no gaps: {lines:#?}");
    let ends = lines.iter().filter(|line| line.seq.is_none()).count();
    assert_eq!(ends, usize::from(status.is_closed()), "{status:?}: {lines:#?}");
}

/// What a journal says, without what differs between two runs of the same: kind, name and attempt of each line.
pub(crate) async fn projection<W>(run: &RunHandle<W>) -> Vec<String> {
    let lines = run.journal().await.expect("a journal can be read");
    lines
        .iter()
        .map(|line| {
            let attempt = line.attempt.map_or(String::new(), |attempt| format!(" #{attempt}"));
            format!("{} {}{attempt}", line.kind, line.name).trim_end().to_owned()
        })
        .collect()
}

/// Starts the generic workflow.
pub(crate) async fn start(
    composer: &Composer,
    commands: impl IntoIterator<Item = kit::Command>,
) -> RunHandle<interpret> {
    composer.start(interpret(commands.into_iter().collect())).await.expect("a run can be started")
}

/// Waits until the run's journal has a line of that kind.
pub(crate) async fn until_line<W>(run: &RunHandle<W>, kind: &str) {
    until_lines(run, kind, 1).await;
}

/// Waits until the run's journal has so many lines of that kind.
pub(crate) async fn until_lines<W>(run: &RunHandle<W>, kind: &str, count: usize) {
    eventually(&format!("{count} lines `{kind}`"), async || {
        let lines = run.journal().await.expect("a journal can be read");
        (lines.iter().filter(|line| line.kind == kind).count() >= count).then_some(())
    })
    .await;
}

/// Waits until the run is where it should be.
pub(crate) async fn until_status<W>(run: &RunHandle<W>, status: Status) {
    eventually(&format!("the run is {status:?}"), async || {
        (run.status().await.expect("a run can be read").status == status).then_some(())
    })
    .await;
}

/// Waits until the run is a row and nothing else: what comes next is a replay.
pub(crate) async fn parked<W>(run: &RunHandle<W>) {
    until_status(run, Status::Parked).await;
}

/// The details of all lines of a kind.
pub(crate) async fn details<W>(run: &RunHandle<W>, kind: &str) -> Vec<String> {
    let lines = run.journal().await.expect("a journal can be read");
    lines.into_iter().filter(|line| line.kind == kind).map(|line| line.detail).collect()
}

/// When the nth timer of the journal is due.
pub(crate) async fn due_of<W>(run: &RunHandle<W>, n: usize) -> Timestamp {
    let detail = details(run, "timer_set").await.swap_remove(n);
    let micros = detail.strip_prefix("due ").and_then(|micros| micros.parse().ok());
    Timestamp::from_micros(micros.unwrap_or_else(|| panic!("`{detail}` says when the timer is due")))
}
