"""Collection of studies: from files and a model to a study, stage by stage."""
