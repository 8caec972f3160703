//! A store that does what a test says before it does what it was asked for.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use composer_runtime::store::{
    Batch, BatchWritten, ChildStarted, Claim, Claimed, Deleted, Epoch, Forked, IdPolicy, JournalConn,
    ListenConn, Message, MessageContent, NewFork, NewMessage, NewRun, NewSession, Order, Ordered, Parent,
    Release, Released, Renewed, Result, RunEnd, RunFilter, RunRow, Sent, SessionConn, SessionId, Settled,
    Started, Store, Suspects, Swept, Topic,
};
use composer_sdk::{
    id::{RunId, Timestamp, WorkflowId},
    journal::Entry,
    payload::Payload,
};
use futures::future::BoxFuture;

/// Called with a method's name before the method; what it fails with is the answer.
pub(crate) type Hook = Arc<dyn Fn(&'static str) -> BoxFuture<'static, Result<()>> + Send + Sync>;

/// See the module.
pub(crate) struct Hooked {
    store: Arc<dyn Store>,
    hook: Hook,
}

impl Hooked {
    pub(crate) fn new<F>(
        store: Arc<dyn Store>,
        hook: impl Fn(&'static str) -> F + Send + Sync + 'static,
    ) -> Arc<Self>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        Arc::new(Self { store, hook: Arc::new(move |call| Box::pin(hook(call))) })
    }
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

struct HookedConn<C: ?Sized> {
    hook: Hook,
    conn: Box<C>,
}

#[async_trait]
impl JournalConn for HookedConn<dyn JournalConn> {
    async fn write(&mut self, session: SessionId, batch: &Batch) -> Result<BatchWritten> {
        (self.hook)("write").await?;
        self.conn.write(session, batch).await
    }
    async fn settle(&mut self, session: SessionId, runs: &[(RunId, Epoch)]) -> Result<Vec<Settled>> {
        (self.hook)("settle").await?;
        self.conn.settle(session, runs).await
    }
}

#[async_trait]
impl SessionConn for HookedConn<dyn SessionConn> {
    async fn renew(&mut self) -> Result<Renewed> {
        (self.hook)("renew").await?;
        self.conn.renew().await
    }
}

#[async_trait]
impl Store for Hooked {
    fn kind(&self) -> &'static str {
        self.store.kind()
    }
    fn location(&self) -> String {
        self.store.location()
    }
    fn journal_lanes(&self) -> usize {
        self.store.journal_lanes()
    }
    async fn open_journal(&self) -> Result<Box<dyn JournalConn>> {
        (self.hook)("open_journal").await?;
        Ok(Box::new(HookedConn { hook: self.hook.clone(), conn: self.store.open_journal().await? }))
    }
    async fn open_session(
        &self,
        session: &NewSession,
    ) -> Result<(SessionId, Timestamp, Box<dyn SessionConn>)> {
        (self.hook)("open_session").await?;
        let (id, at, conn) = self.store.open_session(session).await?;
        Ok((id, at, Box::new(HookedConn { hook: self.hook.clone(), conn })))
    }
    async fn migrate(&self) -> Result<()> {
        (self.hook)("migrate").await?;
        self.store.migrate().await
    }
    async fn check_schema(&self) -> Result<()> {
        (self.hook)("check_schema").await?;
        self.store.check_schema().await
    }
    async fn now(&self) -> Result<Timestamp> {
        (self.hook)("now").await?;
        self.store.now().await
    }
    async fn start(&self, run: &NewRun, policy: IdPolicy, owner: Option<SessionId>) -> Result<Started> {
        (self.hook)("start").await?;
        self.store.start(run, policy, owner).await
    }
    async fn send(&self, run: RunId, message: &NewMessage) -> Result<Sent> {
        (self.hook)("send").await?;
        self.store.send(run, message).await
    }
    async fn start_child(&self, child: &NewRun, parent: &Parent) -> Result<ChildStarted> {
        (self.hook)("start_child").await?;
        self.store.start_child(child, parent).await
    }
    async fn published(&self, run: RunId) -> Result<Vec<(String, Timestamp, Payload)>> {
        (self.hook)("published").await?;
        self.store.published(run).await
    }
    async fn order(&self, run: RunId, order: &Order) -> Result<Ordered> {
        (self.hook)("order").await?;
        self.store.order(run, order).await
    }
    async fn fork(&self, fork: &NewFork) -> Result<Forked> {
        (self.hook)("fork").await?;
        self.store.fork(fork).await
    }
    async fn find(&self, id: &WorkflowId) -> Result<Option<RunRow>> {
        (self.hook)("find").await?;
        self.store.find(id).await
    }
    async fn run(&self, run: RunId) -> Result<Option<RunRow>> {
        (self.hook)("run").await?;
        self.store.run(run).await
    }
    async fn input(&self, run: RunId) -> Result<Option<Payload>> {
        (self.hook)("input").await?;
        self.store.input(run).await
    }
    async fn list(&self, filter: &RunFilter, before: Option<RunId>, limit: u32) -> Result<Vec<RunRow>> {
        (self.hook)("list").await?;
        self.store.list(filter, before, limit).await
    }
    async fn ends(&self, runs: &[RunId]) -> Result<Vec<(RunId, RunEnd)>> {
        (self.hook)("ends").await?;
        self.store.ends(runs).await
    }
    async fn journal(&self, run: RunId, after: u32, limit: u32) -> Result<Vec<Entry>> {
        (self.hook)("journal").await?;
        self.store.journal(run, after, limit).await
    }
    async fn unconsumed(&self, run: RunId) -> Result<Vec<MessageContent>> {
        (self.hook)("unconsumed").await?;
        self.store.unconsumed(run).await
    }
    async fn delete(&self, run: RunId) -> Result<Deleted> {
        (self.hook)("delete").await?;
        self.store.delete(run).await
    }
    async fn claim(&self, claim: &Claim) -> Result<Vec<Claimed>> {
        (self.hook)("claim").await?;
        self.store.claim(claim).await
    }
    async fn load(&self, runs: &[RunId]) -> Result<Vec<(RunId, Vec<Entry>)>> {
        (self.hook)("load").await?;
        self.store.load(runs).await
    }
    async fn inbox(&self, runs: &[RunId]) -> Result<Vec<Message>> {
        (self.hook)("inbox").await?;
        self.store.inbox(runs).await
    }
    async fn prune(&self, run: RunId, before: u32) -> Result<u64> {
        (self.hook)("prune").await?;
        self.store.prune(run, before).await
    }
    async fn release(&self, session: SessionId, runs: &[Release]) -> Result<Vec<Released>> {
        (self.hook)("release").await?;
        self.store.release(session, runs).await
    }
    async fn owned(&self, session: SessionId) -> Result<Vec<(RunId, Epoch)>> {
        (self.hook)("owned").await?;
        self.store.owned(session).await
    }
    async fn next_due(&self, workflows: &[String]) -> Result<Option<Timestamp>> {
        (self.hook)("next_due").await?;
        self.store.next_due(workflows).await
    }
    async fn unhosted(&self) -> Result<Vec<(String, u64)>> {
        (self.hook)("unhosted").await?;
        self.store.unhosted().await
    }
    async fn sweep(&self, seen: &mut Suspects) -> Result<Swept> {
        (self.hook)("sweep").await?;
        self.store.sweep(seen).await
    }
    async fn close_session(&self, session: SessionId) -> Result<()> {
        (self.hook)("close_session").await?;
        self.store.close_session(session).await
    }
    async fn listen(&self, session: Option<SessionId>) -> Result<Box<dyn ListenConn>> {
        (self.hook)("listen").await?;
        self.store.listen(session).await
    }
    async fn notify(&self, topics: &[Topic]) -> Result<()> {
        (self.hook)("notify").await?;
        self.store.notify(topics).await
    }
}
