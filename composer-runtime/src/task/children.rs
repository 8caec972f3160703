//! Starting a run's children and asking them to cancel: calls to the store that are repeated until they are certain.
//!
//! Both may be made twice, so nothing of them is kept: a later life of the run asks again for what is still open. A start
//! is made as the owner of the run and refused for anybody else, so an owner that was left behind starts nothing.

use std::{sync::Arc, time::Duration};

use composer_sdk::id::RunId;

use super::{Mailbox, Note, driver::Child};
use crate::{
    client::check_tags,
    host::Host,
    journal_writer::Tenure,
    store::{ANSWER, ChildStarted, NewMessage, NewRun, Parent, Sent, Topic, within},
};

/// The first and the longest pause between two tries.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Starts a child; the answer comes as a note.
pub(super) fn start(host: Arc<Host>, tenure: Arc<Tenure>, child: Child, mailbox: Mailbox) {
    tokio::spawn(async move {
        let step = child.step.number;
        if let Some(refused) = started(&host, &tenure, child).await {
            let _ = mailbox.send(Note::ChildStarted { step, refused });
        }
    });
}

/// What became of the start; nothing when the run is not ours any more.
async fn started(host: &Host, tenure: &Tenure, child: Child) -> Option<Option<String>> {
    let Child { step, run_id, request, detached } = child;
    if let Err(why) = check_tags(&request.tags) {
        return Some(Some(why.to_string()));
    }
    let run = NewRun {
        run_id,
        workflow_id: request.id,
        workflow: request.workflow.to_owned(),
        input: request.input,
        delay: request.delay,
        timeout: request.timeout,
        tags: request.tags,
        build: host.build.clone(),
        signal: None,
    };
    let mut pause = PAUSE.0;
    let _turn = host.child_starts.acquire().await.ok()?;
    loop {
        let epoch = tenure.epoch();
        let session = host.session.id();
        let parent = Parent { run_id: tenure.run_id, session, epoch, step: step.number, abandoned: detached };
        match within(ANSWER, host.store.start_child(&run, &parent)).await {
            Ok(ChildStarted::Started) => {
                host.hub.notify(Topic::Runs);
                return Some(None);
            }
            Ok(ChildStarted::Taken { run_id }) => {
                let id = run.workflow_id.as_ref().map_or_else(String::new, ToString::to_string);
                return Some(Some(format!("the workflow id `{id}` belongs to another run, {run_id}")));
            }
            // An outcome that was settled has raised the epoch meanwhile; otherwise the run is somebody else's.
            Ok(ChildStarted::Fenced) if tenure.epoch() == epoch => return None,
            Ok(ChildStarted::Fenced) => {}
            Err(error) if error.is_transient() => {
                host.session.complain("a child cannot be started; trying again", &error);
            }
            Err(error) => return Some(Some(format!("the database will not accept the child: {error}"))),
        }
        rest(host, &mut pause).await?;
    }
}

/// Asks a child to cancel. One that is not there has settled.
pub(super) fn cancel(host: Arc<Host>, step: u32, child: RunId, mailbox: Mailbox) {
    tokio::spawn(async move {
        let message = NewMessage::Cancel { reason: "the parent does not wait for it any more".into() };
        let mut pause = PAUSE.0;
        loop {
            match within(ANSWER, host.store.send(child, &message)).await {
                Ok(Sent::NoRun) => return drop(mailbox.send(Note::ChildGone { step })),
                Ok(sent) => {
                    let topic = if sent == Sent::Closed { Topic::Ends } else { Topic::Inbox };
                    host.hub.notify(topic);
                    // One that is closed by now has told the parent.
                    return host.hub.notify(Topic::Inbox);
                }
                Err(error) => host.session.complain("a child cannot be cancelled; trying again", &error),
            }
            if rest(&host, &mut pause).await.is_none() {
                return;
            }
        }
    });
}

/// Waits before a repetition; nothing when the session is lost meanwhile.
async fn rest(host: &Host, pause: &mut Duration) -> Option<()> {
    let _ = tokio::time::timeout(pause.mul_f64(0.5 + fastrand::f64() / 2.0), host.session.lost()).await;
    *pause = (*pause * 2).min(PAUSE.1);
    (!host.session.is_lost()).then_some(())
}
