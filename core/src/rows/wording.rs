//! In whose words an error names what was given: the arguments of a program, or the options of the command.

/// Who reads the error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wording {
    #[default]
    Program,
    Command,
}

impl Wording {
    /// The name of an argument.
    pub(super) fn name(self, name: &str) -> String {
        match self {
            Wording::Program => name.to_owned(),
            Wording::Command => format!("--{}", name.replace('_', "-")),
        }
    }

    /// An argument in a sentence: `from` between quotes, or --from, which is seen to be one.
    pub(super) fn option(self, name: &str) -> String {
        match self {
            Wording::Program => format!("`{name}`"),
            Wording::Command => self.name(name),
        }
    }

    /// A shard with the URL of its database.
    pub(super) fn shard(self, option: &str, name: &str) -> String {
        match self {
            Wording::Program => format!("'{name}=URL'"),
            Wording::Command => format!("--{option} '{name}=URL'"),
        }
    }

    /// How tables are named.
    pub(super) fn table(self) -> &'static str {
        match self {
            Wording::Program => "`table(NAME, KEY)`",
            Wording::Command => "--table T --key COLUMN",
        }
    }

    /// Rows of the new shard become what they are in the old one, those that it lacks among them.
    pub(super) fn repairs(self) -> &'static str {
        match self {
            Wording::Program => "`verify` with `RowRepair::BringAndDelete`",
            Wording::Command => "`keymill move verify --repair --delete`",
        }
    }

    /// What was asked for is asked for once more.
    pub(super) fn again(self) -> &'static str {
        match self {
            Wording::Program => "make the same call again",
            Wording::Command => "run the same command again",
        }
    }
}
