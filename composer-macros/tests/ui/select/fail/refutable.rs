async fn f() -> u32 {
    composer_sdk::select! {
        Some(n) = std::future::ready(Some(1)) => n,
        _ = std::future::pending::<()>() => 0,
    }
}

fn main() {}
