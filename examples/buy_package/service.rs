//! The services that a purchase needs, played by a small HTTP server: payment, activation, texts, audit.
//!
//! It does what is asked of a good service: a request whose `Idempotency-Key` it has answered before gets the same
//! answer, and nothing is done twice. It takes its time (5 to 30 ms), and fails where the order's data say so. It
//! keeps a ledger of everything, against which the program checks its promises in the end.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use tokio::{
    net::TcpListener,
    sync::oneshot,
    task::{AbortHandle, JoinSet},
    time::sleep,
};

use crate::orders::{Case, Services};

/// The server; it ends when this is dropped.
pub(crate) struct Service {
    address: SocketAddr,
    desk: Arc<Desk>,
    task: AbortHandle,
}

/// What the server knows.
struct Desk {
    fates: HashMap<String, Services>,
    ledger: Mutex<Ledger>,
    /// Somebody waits for the next charge.
    trap: Mutex<Option<oneshot::Sender<Held>>>,
}

/// Everything that was asked, and what was done about it.
#[derive(Debug, Default, Clone)]
pub(crate) struct Ledger {
    pub(crate) calls: Vec<Call>,
    /// By order.
    pub(crate) charges: BTreeMap<String, u32>,
    pub(crate) refunds: BTreeMap<String, u32>,
    /// Final answers by key.
    answers: HashMap<String, Answer>,
    /// Failed attempts by key.
    failures: HashMap<String, u32>,
}

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) at: Instant,
    pub(crate) worker: String,
    pub(crate) service: String,
    pub(crate) order: String,
    pub(crate) key: String,
    /// It had been done before: the answer came from the ledger.
    pub(crate) again: bool,
}

impl Call {
    /// The run that asked: a key is `{run_id}-{step}`.
    pub(crate) fn run(&self) -> &str {
        self.key.rsplit_once('-').map_or(&self.key, |(run, _)| run)
    }
}

#[derive(Debug, Clone)]
struct Answer {
    status: u16,
    body: String,
}

/// A charge that is booked and not yet answered: the answer leaves when this is dropped.
pub(crate) struct Held {
    /// Who asked for it.
    pub(crate) worker: String,
    _answer: oneshot::Sender<Infallible>,
}

impl Service {
    /// Starts it on a free port.
    pub(crate) async fn start(cases: &[Case]) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let desk = Arc::new(Desk {
            fates: cases.iter().map(|case| (case.order.number.clone(), case.services)).collect(),
            ledger: Mutex::default(),
            trap: Mutex::default(),
        });
        let task = tokio::spawn(serve(listener, desk.clone())).abort_handle();
        Ok(Self { address, desk, task })
    }

    /// Where a worker finds it. Each has a path of its own, so that the ledger knows who asked.
    pub(crate) fn url_for(&self, worker: &str) -> String {
        format!("http://{}/{worker}", self.address)
    }

    /// Waits until a charge is booked, and holds its answer back: the worst moment to die for who asked.
    pub(crate) async fn hold_next_charge(&self) -> Held {
        let (caught, held) = oneshot::channel();
        *lock(&self.desk.trap) = Some(caught);
        held.await.expect("the service lives as long as this")
    }

    pub(crate) fn ledger(&self) -> Ledger {
        lock(&self.desk.ledger).clone()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A connection is a task; all of them end with the server.
async fn serve(listener: TcpListener, desk: Arc<Desk>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let desk = desk.clone();
        connections.spawn(async move {
            let answer = service_fn(move |request| answer(desk.clone(), request));
            // A client that is killed breaks its connection: nothing that a server would not expect.
            let _ = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
}

/// What the server reads of a body: an order has a number, a booking an id that ends in one.
#[derive(Deserialize)]
struct Body {
    #[serde(alias = "id")]
    number: String,
}

async fn answer(desk: Arc<Desk>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let key = head.headers.get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
    let place = head.uri.path().trim_start_matches('/').split_once('/');
    let (Some((worker, service)), Some(key), Ok(body)) = (place, key, serde_json::from_slice::<Body>(&body))
    else {
        return Ok(reply(
            400,
            "an Idempotency-Key, /worker/service and a body with a number are needed".into(),
        ));
    };
    let order = body.number.rsplit('-').next().unwrap_or_default().to_owned();
    // What follows is done to its end even if the client is gone: that is what makes services hard.
    let call = Call {
        at: Instant::now(),
        worker: worker.to_owned(),
        service: service.to_owned(),
        order,
        key,
        again: false,
    };
    let answer = tokio::spawn(async move { desk.serve(call).await }).await;
    let Answer { status, body } = answer.unwrap_or(Answer { status: 500, body: String::new() });
    Ok(reply(status, body))
}

fn reply(status: u16, body: String) -> Response<Full<Bytes>> {
    let response = Response::builder().status(status).header("content-type", "application/json");
    response.body(Full::from(body)).expect("invariant: a known status and a constant header make a response")
}

impl Desk {
    async fn serve(&self, call: Call) -> Answer {
        latency().await;
        let (worker, charge) = (call.worker.clone(), call.service == "charges");
        let answer = lock(&self.ledger).enter(call, &self.fates);
        if charge && answer.status == 200 {
            self.hold(worker).await;
        }
        latency().await;
        answer
    }

    /// Waits while somebody holds the answer to this charge.
    async fn hold(&self, worker: String) {
        let caught = lock(&self.trap).take();
        if let Some(caught) = caught {
            let (answer, dropped) = oneshot::channel();
            let _ = caught.send(Held { worker, _answer: answer });
            let _ = dropped.await;
        }
    }
}

impl Ledger {
    /// The answer that this key got before, or a new one.
    fn enter(&mut self, mut call: Call, fates: &HashMap<String, Services>) -> Answer {
        let known = self.answers.get(&call.key).cloned();
        call.again = known.is_some();
        let answer = known.unwrap_or_else(|| self.decide(&call, fates));
        self.calls.push(call);
        answer
    }

    fn decide(&mut self, call: &Call, fates: &HashMap<String, Services>) -> Answer {
        let Some(fate) = fates.get(&call.order) else {
            return Answer { status: 404, body: format!("there is no order {:?}", call.order) };
        };
        let failed = self.failures.entry(call.key.clone()).or_default();
        let answer = match (call.service.as_str(), fate) {
            ("charges", Services::CardDeclined) => Answer { status: 402, body: "insufficient funds".into() },
            ("charges", Services::PaymentFailsTwice) if *failed < 2 => unavailable("payment"),
            ("activations", Services::ActivationFailsTwice) if *failed < 2 => unavailable("activation"),
            ("activations", Services::ActivationNeverWorks) => unavailable("activation"),
            (service, _) => {
                let name = service.trim_end_matches('s');
                Answer { status: 200, body: format!(r#"{{"id":"{name}-{}"}}"#, call.order) }
            }
        };
        if answer.status == 503 {
            *failed += 1;
            return answer;
        }
        let count = match (call.service.as_str(), answer.status) {
            ("charges", 200) => Some(&mut self.charges),
            ("refunds", 200) => Some(&mut self.refunds),
            _ => None,
        };
        if let Some(count) = count {
            *count.entry(call.order.clone()).or_default() += 1;
        }
        self.answers.insert(call.key.clone(), answer.clone());
        answer
    }
}

fn unavailable(what: &str) -> Answer {
    Answer { status: 503, body: format!("the {what} system is down") }
}

/// Half of the way there and back.
async fn latency() {
    sleep(Duration::from_micros(fastrand::u64(2_500..=15_000))).await;
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics while it holds this lock")
}
