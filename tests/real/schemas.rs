//! The schema registry, by Apicurio's own API.

use serde_json::Value;

use crate::world::env;

fn artifacts() -> String {
    format!("{}/apis/registry/v2/groups/default/artifacts", env("COUNTERSIGN_REGISTRY_URL"))
}

/// The names of the schemas that are there, of some hundreds at most.
pub fn list() -> Vec<String> {
    let page: Value = ureq::get(format!("{}?limit=500", artifacts())).call().unwrap().body_mut().read_json().unwrap();
    let ids = page["artifacts"].as_array().unwrap().iter().map(|artifact| artifact["id"].as_str().unwrap().to_owned());
    ids.collect()
}

/// Deletes the schemas whose name has this in it.
pub fn delete(name: &str) {
    for id in list().iter().filter(|id| id.contains(name)) {
        ureq::delete(format!("{}/{id}", artifacts())).call().unwrap();
    }
}
