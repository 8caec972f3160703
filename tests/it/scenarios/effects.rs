//! The effect server: the judge of "ran once", "ran twice with one key", "never more than so many at once".
//!
//! An effect is a POST to its name. The server counts it, then does what the test has scripted for that name, or
//! echoes the body. A call counts from the moment it has arrived, whatever becomes of its answer.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinHandle,
};

use crate::support::eventually;

/// What the server does with a call.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// Answers with this value.
    Value(Value),
    /// Answers with this status and text.
    Status(u16, &'static str),
    /// Answers 429, and to come again after so many seconds.
    RetryAfter(u64),
    /// Echoes after a while.
    Late(Duration),
    /// The effect has happened, but the connection breaks before the answer.
    Lost,
}

/// One call, as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// Its idempotency key.
    pub(crate) key: String,
    /// Which attempt the activity said it was.
    pub(crate) attempt: u32,
    /// What it sent.
    pub(crate) body: Value,
    /// When it arrived.
    pub(crate) at: Instant,
}

#[derive(Debug, Default)]
struct State {
    calls: HashMap<String, Vec<Call>>,
    script: HashMap<String, VecDeque<Answer>>,
    always: HashMap<String, Answer>,
    held: HashSet<String>,
    active: usize,
    most: usize,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    opened: Notify,
}

/// The server of one test.
#[derive(Debug)]
pub(crate) struct Effects {
    url: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for Effects {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Effects {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
        let url = format!("http://{}", listener.local_addr().expect("a bound port has a number"));
        let shared = Arc::<Shared>::default();
        let task = tokio::spawn({
            let shared = shared.clone();
            async move {
                while let Ok((connection, _)) = listener.accept().await {
                    tokio::spawn(serve(connection, shared.clone()));
                }
            }
        });
        Self { url, shared, task }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("nothing panics under this lock")
    }

    /// The next calls of that name are answered so; later ones are echoed.
    pub(crate) fn script(&self, name: &str, answers: impl IntoIterator<Item = Answer>) {
        self.state().script.entry(name.into()).or_default().extend(answers);
    }

    /// All calls of that name are answered so, once the script is played.
    pub(crate) fn always(&self, name: &str, answer: Answer) {
        self.state().always.insert(name.into(), answer);
    }

    /// Calls of that name get no answer until [`Effects::open`].
    pub(crate) fn hold(&self, name: &str) {
        self.state().held.insert(name.into());
    }

    /// Calls of that name that were held are answered, as are all later ones.
    pub(crate) fn open(&self, name: &str) {
        self.state().held.remove(name);
        self.shared.opened.notify_waiters();
    }

    /// The calls of that name, in the order of their arrival.
    pub(crate) fn calls(&self, name: &str) -> Vec<Call> {
        self.state().calls.get(name).cloned().unwrap_or_default()
    }

    /// How often that effect happened.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.calls(name).len()
    }

    /// How often each effect happened, by name.
    pub(crate) fn counts(&self) -> Vec<(String, usize)> {
        let mut counts: Vec<_> =
            self.state().calls.iter().map(|(name, calls)| (name.clone(), calls.len())).collect();
        counts.sort();
        counts
    }

    /// All effects together.
    pub(crate) fn total(&self) -> usize {
        self.state().calls.values().map(Vec::len).sum()
    }

    /// The idempotency keys under which that effect was asked for.
    pub(crate) fn keys(&self, name: &str) -> BTreeSet<String> {
        self.calls(name).into_iter().map(|call| call.key).collect()
    }

    /// How many calls were under way at once, at most.
    pub(crate) fn most_at_once(&self) -> usize {
        self.state().most
    }

    /// How many calls are under way.
    pub(crate) fn active(&self) -> usize {
        self.state().active
    }

    /// [`Effects::most_at_once`] begins anew.
    pub(crate) fn forget_most(&self) {
        let mut state = self.state();
        state.most = state.active;
    }

    /// Waits until the effect has happened that often.
    pub(crate) async fn arrived(&self, name: &str, count: usize) {
        eventually(&format!("effect `{name}` happens {count} times"), async || {
            (self.count(name) >= count).then_some(())
        })
        .await;
    }
}

async fn serve(connection: TcpStream, shared: Arc<Shared>) {
    let mut connection = BufReader::new(connection);
    while let Some(request) = read(&mut connection).await {
        if answer(&mut connection, &shared, request).await.is_none() {
            return;
        }
    }
}

struct Request {
    name: String,
    key: String,
    attempt: u32,
    body: Value,
}

/// One request; none when the connection ends.
async fn read(connection: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut request = Request { name: String::new(), key: String::new(), attempt: 0, body: Value::Null };
    let mut length = 0;
    let mut line = String::new();
    while connection.read_line(&mut line).await.ok()? > 2 {
        match line.trim_end().split_once(": ") {
            Some((name, value)) => match name.to_ascii_lowercase().as_str() {
                "idempotency-key" => request.key = value.into(),
                "attempt" => request.attempt = value.parse().expect("an attempt is a number"),
                "content-length" => length = value.parse().expect("a length is a number"),
                _ => {}
            },
            None => request.name = line.split(' ').nth(1).unwrap_or_default().trim_matches('/').into(),
        }
        line.clear();
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).await.ok()?;
    (!request.name.is_empty()).then_some(())?;
    request.body = serde_json::from_slice(&body).expect("an effect's body is JSON");
    Some(request)
}

/// Counts a call and answers it; none when the connection is to be closed.
async fn answer(connection: &mut BufReader<TcpStream>, shared: &Shared, request: Request) -> Option<()> {
    let Request { name, key, attempt, body } = request;
    let answer = {
        let mut state = shared.state.lock().expect("nothing panics under this lock");
        let call = Call { key, attempt, body: body.clone(), at: Instant::now() };
        state.calls.entry(name.clone()).or_default().push(call);
        state.active += 1;
        state.most = state.most.max(state.active);
        let scripted = state.script.get_mut(&name).and_then(VecDeque::pop_front);
        scripted.or_else(|| state.always.get(&name).cloned())
    };
    let active = Active(shared);
    until_open(connection, shared, &name).await?;
    let (head, body) = match answer {
        None => ("200 OK".to_owned(), body.to_string()),
        Some(Answer::Value(value)) => ("200 OK".to_owned(), value.to_string()),
        Some(Answer::Status(status, text)) => (format!("{status} Refused"), text.to_owned()),
        Some(Answer::RetryAfter(seconds)) => {
            (format!("429 Too Many\r\nRetry-After: {seconds}"), "too many".into())
        }
        Some(Answer::Late(length)) => {
            tokio::time::sleep(length).await;
            ("200 OK".to_owned(), body.to_string())
        }
        Some(Answer::Lost) => return None,
    };
    // What the client does next happens after this call, not beside it.
    drop(active);
    let answer = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    connection.write_all(answer.as_bytes()).await.ok()
}

/// Waits as long as the name is held; none when the client has gone away.
async fn until_open(connection: &mut BufReader<TcpStream>, shared: &Shared, name: &str) -> Option<()> {
    loop {
        let opened = shared.opened.notified();
        if !shared.state.lock().expect("nothing panics under this lock").held.contains(name) {
            return Some(());
        }
        let mut byte = [0];
        tokio::select! {
            () = opened => {}
            gone = connection.get_ref().peek(&mut byte) => {
                if matches!(gone, Ok(0) | Err(_)) {
                    return None;
                }
                tokio::task::yield_now().await;
            }
        }
    }
}

/// A call under way.
struct Active<'a>(&'a Shared);

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.state.lock().expect("nothing panics under this lock").active -= 1;
    }
}
