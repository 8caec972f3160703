use composer_sdk::{Result, activity};

fn is_transient(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::TimedOut
}

#[activity(retry(on = is_transient))]
async fn of_another_error() -> Result<u32> {
    Ok(1)
}

fn main() {}
