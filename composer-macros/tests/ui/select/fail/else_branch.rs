async fn f() {
    composer_sdk::select! {
        () = std::future::ready(()) => {}
        else => {}
    }
}

fn main() {}
