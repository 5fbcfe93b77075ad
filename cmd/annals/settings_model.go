package main

import "github.com/annals-project/annals/commands/pipeline/model"

// model is the endpoint that extracts memory, zero for the built-in extractor.
func (s *Settings) model() model.Endpoint {
	return model.Endpoint{URL: s.ModelURL, Name: s.ModelName, Key: s.ModelKey}
}

// embeddings is the endpoint for embeddings, zero for none.
func (s *Settings) embeddings() model.Endpoint {
	return model.Endpoint{URL: s.EmbedURL, Name: s.EmbedName, Key: s.EmbedKey}
}

// validateModel reports an endpoint that is set in part, or cannot work. The address may hold a password, and is not repeated.
func validateModel(family string, e model.Endpoint, bad func(name, format string, args ...any)) {
	switch {
	case e.URL == "" && e.Name == "" && e.Key == "":
	case e.URL == "":
		bad(family+"_URL", "is not set, but ANNALS_%s_NAME or ANNALS_%s_KEY is: set the address of the endpoint, or none of them", family, family)
	case e.Name == "":
		bad(family+"_NAME", "is not set, but ANNALS_%s_URL is: name the model that is asked there", family)
	default:
		if err := e.Validate(); err != nil {
			bad(family+"_URL", "cannot be used: %v", err)
		}
	}
}
