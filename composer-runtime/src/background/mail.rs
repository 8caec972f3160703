//! Fetches messages for hosted runs.

use std::sync::Arc;

use composer_sdk::id::RunId;

use super::{Hints, ask, hint_or};
use crate::{host::Host, store::read_each, task::Note};

/// Runs asked about in one query.
const ASK: usize = 1_000;

pub(super) async fn run(host: Arc<Host>, hints: Arc<Hints>) {
    loop {
        hint_or(&hints.mail, host.limits.poll).await;
        for runs in host.hosted().chunks(ASK) {
            fetch(&host, runs).await;
        }
    }
}

/// Fetches the messages of these runs. One that cannot be read makes its run stuck, and no other.
pub(crate) async fn fetch(host: &Host, runs: &[RunId]) {
    let read = read_each(runs, |runs| host.store.inbox(runs));
    let Some((mail, unreadable)) = ask(host, "reading the inbox failed; trying again", read).await else {
        return;
    };
    host.deliver(mail);
    for (run, why) in unreadable {
        host.tell_one(run, Note::Unreadable(why));
    }
}
