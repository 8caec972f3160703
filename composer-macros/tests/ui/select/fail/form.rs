async fn f() {
    composer_sdk::select! { biased; () = std::future::ready(()) => {} }
    composer_sdk::select! {}
    composer_sdk::select! { std::future::ready(()) => 1 }
    composer_sdk::select! { a = std::future::ready(1) => 1 b = std::future::ready(1) => 2 }
    composer_sdk::join!();
}

fn main() {}
