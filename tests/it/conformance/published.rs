//! What runs show: written with the entries that it follows from, or not at all.

use composer_runtime::store::{Deleted, RunBatch, Store, Written};
use composer_sdk::id::RunId;

use super::kit::*;
use crate::support::promise;

fn showing(part: RunBatch, shown: &[(&str, &str)]) -> RunBatch {
    let published = shown.iter().map(|(name, value)| ((*name).to_owned(), bytes(value))).collect();
    RunBatch { published, ..part }
}

async fn shown(store: &dyn Store, run: RunId) -> Vec<(String, String)> {
    let shown = store.published(run).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    shown.into_iter().map(|(name, _, value)| (name, text(value.as_bytes()))).collect()
}

fn pairs(shown: &[(&str, &str)]) -> Vec<(String, String)> {
    shown.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

promise! {
    async fn what_a_run_shows_is_written_with_its_entries_and_the_last_value_counts(db) {
        let store = db.store();
        let me = session(&*store).await;
        let (run, other) = (owned(&*store, me).await, owned(&*store, me).await);
        let alone = showing(decided(run, 0, vec![]), &[("a", "1")]);
        assert_eq!(write(&*store, me, vec![alone]).await, [Written::Accepted]);
        let mut parts = vec![
            showing(decided(run, 0, vec![done(1, "x")]), &[("a", "2"), ("b", "3")]),
            showing(completed(other, 0, vec![done(1, "x")]), &[("a", "9")]),
        ];
        parts.sort_by_key(|part| part.run_id);
        assert_eq!(write(&*store, me, parts).await, [Written::Accepted, Written::Accepted]);
        assert_eq!(shown(&*store, run.0).await, pairs(&[("a", "2"), ("b", "3")]));
        assert_eq!(shown(&*store, other.0).await, pairs(&[("a", "9")]), "also of a closed run");
        assert_eq!(seqs(&*store, run.0).await, [1]);
    }
}

promise! {
    async fn p03_a_fenced_run_shows_nothing_and_its_neighbour_does(db) {
        let store = db.store();
        let me = session(&*store).await;
        let (stale, mine) = (owned(&*store, me).await, owned(&*store, me).await);
        let stale = (stale.0, composer_runtime::store::Epoch(stale.1.0 - 1));
        let mut parts = vec![
            showing(decided(stale, 0, vec![done(1, "x")]), &[("a", "stale")]),
            showing(decided(mine, 0, vec![done(1, "x")]), &[("a", "mine")]),
        ];
        parts.sort_by_key(|part| part.run_id);
        let expected = parts.iter().map(|part| if part.run_id == mine.0 { Written::Accepted } else { Written::Fenced });
        let expected: Vec<_> = expected.collect();
        assert_eq!(write(&*store, me, parts).await, expected);
        assert_eq!(shown(&*store, stale.0).await, []);
        assert_eq!(shown(&*store, mine.0).await, pairs(&[("a", "mine")]));
        // An entry whose inbox row is gone fences what it came with, too.
        let gone = showing(decided(mine, 1, vec![signalled(2, 777, "go", "1")]), &[("a", "never")]);
        assert_eq!(write(&*store, me, vec![gone]).await, [Written::Fenced]);
        assert_eq!(shown(&*store, mine.0).await, pairs(&[("a", "mine")]));
    }
}

promise! {
    async fn what_a_run_showed_goes_with_it(db) {
        let store = db.store();
        let me = session(&*store).await;
        let run = owned(&*store, me).await;
        write(&*store, me, vec![showing(completed(run, 0, vec![]), &[("a", "1")])]).await;
        assert_eq!(store.delete(run.0).await.unwrap(), Deleted::Done);
        assert_eq!(shown(&*store, run.0).await, []);
    }
}
