package comprehend

func readMetadata(d *document, out *collector, a *allowance) {}
