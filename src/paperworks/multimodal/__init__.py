"""Models of more than one modality: pictures and text in one space."""
