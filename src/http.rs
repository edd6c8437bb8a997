//! The HTTP side: receipts by id, health, metrics.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::store::StoreError;
use crate::supervisor::{PipelineView, Readiness, report};

pub struct HttpState {
    pub pipelines: Vec<PipelineView>,
    pub metrics: Metrics,
    /// Whoever has one of these may read. None: everybody who reaches the address.
    pub tokens: Vec<String>,
}

/// Serves until it is stopped.
pub async fn serve(
    listener: tokio::net::TcpListener,
    state: Arc<HttpState>,
    stop: CancellationToken,
) -> std::io::Result<()> {
    axum::serve(listener, router(state)).with_graceful_shutdown(stop.cancelled_owned()).await
}

pub async fn bind(address: SocketAddr) -> std::io::Result<tokio::net::TcpListener> {
    tokio::net::TcpListener::bind(address).await
}

fn router(state: Arc<HttpState>) -> Router {
    let api = Router::new()
        .route("/v1/receipts", get(list_receipts))
        .route("/v1/receipts/{message_id}", get(get_receipt))
        .route("/v1/messages/{message_id}/timeline", get(timeline))
        .layer(middleware::from_fn_with_state(Arc::clone(&state), authorise));
    Router::new()
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .merge(api)
        .with_state(state)
}

async fn readyz(State(state): State<Arc<HttpState>>) -> Response {
    let report = report(&state.pipelines);
    let code = match report.status {
        Readiness::Ready | Readiness::Degraded => StatusCode::OK,
        Readiness::Unready => StatusCode::SERVICE_UNAVAILABLE,
    };
    (code, Json(report)).into_response()
}

async fn metrics(State(state): State<Arc<HttpState>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], state.metrics.render()).into_response()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Narrow {
    pipeline: Option<String>,
    scope: Option<String>,
    correlation_id: Option<String>,
}

#[derive(Debug, Serialize)]
struct Problem {
    error: &'static str,
    detail: String,
}

fn unknown() -> Response {
    let detail = "no message with this id is known: it was not received yet, or its row was purged";
    problem(StatusCode::NOT_FOUND, "not_found", detail)
}

fn problem(code: StatusCode, error: &'static str, detail: impl Into<String>) -> Response {
    (code, Json(Problem { error, detail: detail.into() })).into_response()
}

/// The database's own words may hold row values: they go to the log.
fn store_problem(error: &StoreError) -> Response {
    tracing::warn!(%error, "a look-up failed");
    problem(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", "the database did not answer, ask again")
}

impl HttpState {
    fn wanted<'a>(&'a self, narrow: &'a Narrow) -> impl Iterator<Item = &'a PipelineView> {
        let wanted = narrow.pipeline.as_deref();
        self.pipelines.iter().filter(move |view| wanted.is_none_or(|name| name == &*view.lookup.pipeline))
    }
}

async fn get_receipt(
    State(state): State<Arc<HttpState>>,
    Path(message_id): Path<String>,
    Query(narrow): Query<Narrow>,
) -> Response {
    let mut receipts = Vec::new();
    for view in state.wanted(&narrow) {
        match view.lookup.receipts(&message_id, narrow.scope.as_deref()).await {
            Ok(found) => receipts.extend(found),
            Err(error) => return store_problem(&error),
        }
    }
    match receipts.len() {
        0 => unknown(),
        1 => Json(receipts.remove(0)).into_response(),
        _ => problem(
            StatusCode::CONFLICT,
            "ambiguous",
            "several pipelines or scopes know this id: say `pipeline` and `scope`",
        ),
    }
}

const MOST_RECEIPTS: i64 = 100;

async fn list_receipts(State(state): State<Arc<HttpState>>, Query(narrow): Query<Narrow>) -> Response {
    let Some(correlation_id) = &narrow.correlation_id else {
        return problem(StatusCode::BAD_REQUEST, "correlation_id_missing", "say `correlationId`");
    };
    let mut receipts = Vec::new();
    for view in state.wanted(&narrow) {
        match view.lookup.by_correlation(correlation_id, MOST_RECEIPTS).await {
            Ok(found) => receipts.extend(found),
            Err(error) => return store_problem(&error),
        }
    }
    Json(receipts).into_response()
}

async fn timeline(
    State(state): State<Arc<HttpState>>,
    Path(message_id): Path<String>,
    Query(narrow): Query<Narrow>,
) -> Response {
    let mut stories = Vec::new();
    for view in state.wanted(&narrow) {
        match view.lookup.stories(&message_id, narrow.scope.as_deref()).await {
            Ok(found) => stories.extend(found),
            Err(error) => return store_problem(&error),
        }
    }
    if stories.is_empty() {
        return unknown();
    }
    Json(stories).into_response()
}

async fn authorise(State(state): State<Arc<HttpState>>, headers: HeaderMap, request: Request, next: Next) -> Response {
    if state.tokens.is_empty() {
        return next.run(request).await;
    }
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    if state.tokens.iter().any(|token| same(token.as_bytes(), given.as_bytes())) {
        return next.run(request).await;
    }
    let mut response = problem(StatusCode::UNAUTHORIZED, "unauthorised", "a bearer token is needed");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
    response
}

/// Compares without telling by its duration how much of a token was right.
fn same(token: &[u8], given: &[u8]) -> bool {
    token.len() == given.len() && token.iter().zip(given).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}
