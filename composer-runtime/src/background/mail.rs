//! Fetches messages for hosted runs.

use std::sync::Arc;

use super::{Hints, ask, hint_or};
use crate::host::Host;

/// Runs asked about in one query.
const ASK: usize = 1_000;

pub(super) async fn run(host: Arc<Host>, hints: Arc<Hints>) {
    loop {
        hint_or(&hints.mail, host.limits.poll).await;
        for runs in host.hosted().chunks(ASK) {
            if let Some(mail) =
                ask(&host, "reading the inbox failed; trying again", host.store.inbox(runs)).await
            {
                host.deliver(mail);
            }
        }
    }
}
