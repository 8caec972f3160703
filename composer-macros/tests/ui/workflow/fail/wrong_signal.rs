use composer_sdk::{Signal, workflow};

#[derive(serde::Serialize, serde::Deserialize)]
enum Decision {
    Yes,
    No,
}

static APPROVAL: Signal<Decision> = Signal::new("approval");

#[workflow]
async fn buy() -> bool {
    let text: String = APPROVAL.recv().await;
    text == "yes"
}

fn main() {
    let _ = (Decision::Yes, Decision::No);
}
