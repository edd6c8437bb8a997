//! `[[route]]`.

use crate::effect::spec::{EffectSpec, Guard, TableSpec};
use std::sync::Arc;

use super::Check;
use super::matching::is_path;
use crate::config::options::{Late, Order, PipelineOptions, RouteConfig};
use crate::config::raw::{RawDigest, RawIdFormat, RawRoute, RawSnapshot, RawTombstone, RawTruncate};
use crate::route::{DigestRule, IdFormat, Route, SnapshotPolicy, TombstonePolicy, TruncatePolicy};

impl Check<'_> {
    /// None in the place of a route whose effect is faulty, so that the others keep their numbers.
    pub(super) fn routes(&mut self, raw: Vec<RawRoute>, pipeline: &PipelineOptions) -> Vec<Option<RouteConfig>> {
        let mut names: Vec<String> = Vec::new();
        let mut routes = Vec::new();
        for (n, raw) in raw.into_iter().enumerate() {
            let path = format!("route[{n}]");
            let name = raw.name.clone().unwrap_or_default();
            if names.contains(&name) {
                let quoted = self.quote(&format!("{path}.name"));
                self.fault(
                    &format!("{path}.name"),
                    format!("{quoted} is the name of an earlier route: choose another"),
                );
            }
            names.push(name);
            routes.push(self.route(&path, raw, pipeline));
        }
        routes
    }

    fn route(&mut self, path: &str, raw: RawRoute, pipeline: &PipelineOptions) -> Option<RouteConfig> {
        let name = raw.name.unwrap_or_default();
        self.name(&format!("{path}.name"), &name);
        let columns = raw.columns.into_iter().flatten().filter_map(|(field, kind)| {
            let kind = self.column(&format!("{path}.columns.{field}"), &kind)?;
            Some((field, kind))
        });
        let columns = columns.collect();
        let route = Route {
            name: Arc::from(name),
            scope: Arc::from(raw.scope.unwrap_or_default()),
            matcher: self.matcher(&format!("{path}.match"), raw.matcher.unwrap_or_default()),
            message_id: raw.message_id.map_or_else(Vec::new, |ids| self.id_rules(&format!("{path}.message_id"), ids)),
            id_format: raw.id_format.map_or_else(IdFormat::default, id_format),
            max_id_bytes: pipeline.max_id_bytes,
            correlation_id: self.place(&format!("{path}.correlation_id"), raw.correlation_id),
            source_app: self.place(&format!("{path}.source_app"), raw.source_app),
            digest: self.digest(&format!("{path}.digest"), raw.digest.unwrap_or_default()),
            columns,
            double_encoded: raw.double_encoded.unwrap_or(false),
            truncate: raw.truncate.map_or_else(TruncatePolicy::default, truncate),
            tombstone: raw.tombstone.map_or_else(TombstonePolicy::default, tombstone),
            snapshot: raw.snapshot.map_or_else(SnapshotPolicy::default, snapshot),
        };
        let effect = self.effect(&format!("{path}.effect"), raw.effect?)?;
        if let EffectSpec::Table(TableSpec { inbox: false, .. }) = &effect
            && route.truncate == TruncatePolicy::Apply
        {
            let message =
                "\"apply\" needs the inbox: without it a repeat would empty the table again, under newer rows";
            self.fault(&format!("{path}.truncate"), message);
        }
        let order = raw.order.unwrap_or_default();
        if let EffectSpec::Table(TableSpec { inbox: false, .. }) = &effect
            && order == Order::Key
        {
            let message = "\"key\" needs the inbox: what waits for its turn is kept there";
            self.fault(&format!("{path}.order"), message);
        }
        // The guard keeps what is late from overwriting what is newer; that is what lets compacted topics be taken.
        let guarded = matches!(&effect, EffectSpec::Table(TableSpec { guard: Guard::Source, .. }));
        let late = raw.late.unwrap_or(if guarded { Late::Apply } else { Late::Park });
        Some(RouteConfig { route, effect, order, late })
    }

    fn digest(&mut self, path: &str, raw: RawDigest) -> DigestRule {
        let Some(include) = raw.include else {
            return DigestRule::Whole;
        };
        for (n, field) in include.iter().enumerate() {
            let path = format!("{path}.include[{n}]");
            if !is_path(field) {
                let quoted = self.quote(&path);
                self.fault(&path, format!("{quoted} is no path: write a field, or a.b for a field inside one"));
            } else if include[..n].contains(field) {
                self.fault(&path, "is listed twice: leave one out");
            }
        }
        DigestRule::Include(include)
    }
}

fn id_format(raw: RawIdFormat) -> IdFormat {
    match raw {
        RawIdFormat::Text => IdFormat::Text,
        RawIdFormat::Uuid => IdFormat::Uuid,
        RawIdFormat::UuidBytes => IdFormat::UuidBytes,
    }
}

fn truncate(raw: RawTruncate) -> TruncatePolicy {
    match raw {
        RawTruncate::Skip => TruncatePolicy::Skip,
        RawTruncate::Apply => TruncatePolicy::Apply,
        RawTruncate::Park => TruncatePolicy::Park,
    }
}

fn tombstone(raw: RawTombstone) -> TombstonePolicy {
    match raw {
        RawTombstone::Skip => TombstonePolicy::Skip,
        RawTombstone::Delete => TombstonePolicy::Delete,
    }
}

fn snapshot(raw: RawSnapshot) -> SnapshotPolicy {
    match raw {
        RawSnapshot::Apply => SnapshotPolicy::Apply,
        RawSnapshot::Skip => SnapshotPolicy::Skip,
    }
}
