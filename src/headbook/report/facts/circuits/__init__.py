"""Facts on what heads read and write: rules, facts of their page, effects of outputs."""
