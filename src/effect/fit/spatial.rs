//! Geometries: well-known binary as Debezium sends it (PostGIS' extended form included), and as each database takes it.

use super::Misfit;

/// PostGIS' flag for an SRID behind the type.
const HAS_SRID: u32 = 0x2000_0000;
/// Its flags for further dimensions.
const MORE_DIMENSIONS: u32 = 0xc000_0000;

struct Header {
    little: bool,
    kind: u32,
    /// Of the extended form.
    srid: Option<u32>,
}

fn header(wkb: &[u8]) -> Option<Header> {
    let little = match wkb.first()? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let number = |at: usize| {
        let bytes: [u8; 4] = wkb.get(at..at + 4)?.try_into().ok()?;
        Some(if little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    };
    let kind = number(1)?;
    let srid = if kind & HAS_SRID == 0 { None } else { Some(number(5)?) };
    Some(Header { little, kind, srid })
}

fn rebuilt(wkb: &[u8], header: &Header, kind: u32, srid: Option<u32>) -> Vec<u8> {
    let number = |n: u32| if header.little { n.to_le_bytes() } else { n.to_be_bytes() };
    let mut out = Vec::with_capacity(wkb.len() + 4);
    out.push(u8::from(header.little));
    out.extend(number(kind));
    out.extend(srid.into_iter().flat_map(number));
    out.extend(wkb.get(if header.srid.is_some() { 9 } else { 5 }..).unwrap_or_default());
    out
}

fn unreadable() -> Misfit {
    Misfit::kind("the geometry is no well-known binary".to_owned())
}

/// With its SRID inside, as PostGIS reads it. What says its own SRID keeps it.
pub(super) fn extended(wkb: &[u8], srid: Option<i64>) -> Result<Vec<u8>, Misfit> {
    let header = header(wkb).ok_or_else(unreadable)?;
    match (header.srid, srid) {
        (None, Some(srid)) if srid != 0 => {
            let srid = u32::try_from(srid).map_err(|_| unreadable())?;
            Ok(rebuilt(wkb, &header, header.kind | HAS_SRID, Some(srid)))
        }
        _ => Ok(wkb.to_vec()),
    }
}

/// As MySQL and MariaDB keep it: the SRID in four bytes, then plain well-known binary. Unlike `ST_GeomFromWKB` that
/// neither turns latitude and longitude round nor needs another statement for each SRID.
pub(super) fn mysql(wkb: &[u8], srid: Option<i64>) -> Result<Vec<u8>, Misfit> {
    let header = header(wkb).ok_or_else(unreadable)?;
    if header.kind & MORE_DIMENSIONS != 0 {
        return Err(Misfit::range("it has two dimensions, the value more"));
    }
    if !header.little {
        return Err(Misfit::kind("the geometry's bytes are big-endian".to_owned()));
    }
    let srid = match header.srid {
        Some(srid) => srid,
        None => u32::try_from(srid.unwrap_or(0)).map_err(|_| unreadable())?,
    };
    let mut out = srid.to_le_bytes().to_vec();
    out.extend(rebuilt(wkb, &header, header.kind & !HAS_SRID, None));
    Ok(out)
}

/// Postgres' own `(x,y)`.
pub(super) fn point(wkb: &[u8]) -> Result<String, Misfit> {
    let header = header(wkb).ok_or_else(unreadable)?;
    if header.kind & !HAS_SRID != 1 {
        return Err(Misfit::kind("the geometry is no point".to_owned()));
    }
    let at = if header.srid.is_some() { 9 } else { 5 };
    let number = |at: usize| {
        let bytes: [u8; 8] = wkb.get(at..at + 8)?.try_into().ok()?;
        Some(if header.little { f64::from_le_bytes(bytes) } else { f64::from_be_bytes(bytes) })
    };
    let (x, y) = number(at).zip(number(at + 8)).ok_or_else(unreadable)?;
    Ok(format!("({x:?},{y:?})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debezium::render::hex;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    const PLAIN: &str = "010100000000000000000012400000000000204a40";
    const EXTENDED: &str = "0101000020e610000000000000000012400000000000204a40";

    #[test]
    fn srids_go_where_each_database_keeps_them() {
        assert_eq!(hex(&extended(&bytes(PLAIN), Some(4326)).unwrap()), EXTENDED);
        assert_eq!(hex(&extended(&bytes(EXTENDED), None).unwrap()), EXTENDED);
        assert_eq!(hex(&extended(&bytes(PLAIN), None).unwrap()), PLAIN);
        assert_eq!(hex(&mysql(&bytes(EXTENDED), Some(4326)).unwrap()), format!("e6100000{PLAIN}"));
        assert_eq!(hex(&mysql(&bytes(PLAIN), None).unwrap()), format!("00000000{PLAIN}"));
        assert!(mysql(b"\x01", None).is_err());
    }

    #[test]
    fn a_point_is_read_in_either_byte_order() {
        assert_eq!(point(&bytes(PLAIN)).unwrap(), "(4.5,52.25)");
        assert_eq!(
            point(&bytes("000000000140120000000000004 04a200000000000".replace(' ', "").as_str())).unwrap(),
            "(4.5,52.25)"
        );
        assert!(point(&bytes("0102000000000000000000000000000000")).is_err());
    }
}
