//! Where record lines go: standard output, or a file that is packed by its name.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::cli::input::packing;

pub enum Out {
    Stdout,
    Plain(BufWriter<File>),
    Gz(GzEncoder<BufWriter<File>>),
    Zst(Box<zstd::stream::write::Encoder<'static, BufWriter<File>>>),
}

impl Out {
    pub fn open(path: Option<&Path>) -> std::io::Result<Self> {
        let Some(path) = path else { return Ok(Self::Stdout) };
        let file = BufWriter::new(File::create(path)?);
        Ok(match &*packing(path) {
            "gz" => Self::Gz(GzEncoder::new(file, Compression::default())),
            "zst" => Self::Zst(Box::new(zstd::stream::write::Encoder::new(file, zstd::DEFAULT_COMPRESSION_LEVEL)?)),
            _ => Self::Plain(file),
        })
    }

    pub fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Stdout => {
                let mut out = std::io::stdout().lock();
                out.write_all(bytes)?;
                out.flush()
            }
            Self::Plain(file) => file.write_all(bytes),
            Self::Gz(file) => file.write_all(bytes),
            Self::Zst(file) => file.write_all(bytes),
        }
    }

    /// Completes the file and waits until it is on disk.
    pub fn finish(self) -> std::io::Result<()> {
        let file = match self {
            Self::Stdout => return Ok(()),
            Self::Plain(file) => file,
            Self::Gz(file) => file.finish()?,
            Self::Zst(file) => file.finish()?,
        };
        file.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()
    }
}
