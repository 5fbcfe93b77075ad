package mcp

import (
	"github.com/annals-project/annals/internal/auth"
)

// metadataSchema has one type, since some clients drop a tool with a property that has none.
var metadataSchema = object{"type": "object"}

// recallTool returns the tool that recalls.
func recallTool() tool {
	return tool{
		name: "recall", title: "Recall", scope: auth.Read, route: "POST " + prefix + "/recall",
		description: "Find what is remembered, best first, each with its date, who said it and its source id. Call it " +
			"before you answer a question about people, decisions, facts, plans or events of the past.",
		args: []argument{
			{name: "query", required: true, text: "One question in the words of the user, not keywords. * lists the newest."},
			{name: identityArgument, identity: true, text: "Who asks."},
			{name: "limit", otherwise: 8, text: "The most results."},
			{name: "level", text: "How much evidence to gather: low, medium, high or extra-high."},
			{name: "maxTokens", text: "The most tokens of evidence, in place of level."},
			{name: "queryTimestamp", text: "When the question is asked, such as 2026-11-28T09:00:00Z. Left out: now."},
			{name: "occurredFrom", text: "Only what happened from then on, such as 2026-11-01."},
			{name: "occurredTo", text: "Only what happened until then, such as 2026-11-28."},
			{name: "sort", text: "relevance (best first) or chronological (oldest first)."},
		},
		act: actRecall, write: (*writer).recall,
		more: "recall with a narrower query or a smaller limit, or read with a source id",
	}
}

// rememberTool returns the tool that remembers.
func rememberTool() tool {
	return tool{
		name: rememberName, title: "Remember", scope: auth.Write, route: "POST " + prefix + "/ingest",
		description: "Store one fact, message or decision that will matter later. recall finds it a moment later.",
		changes:     true, repeatable: true,
		args: []argument{
			{name: "content", required: true, text: "The text as it was said or written, up to 1 MiB."},
			{name: "id", text: "A short name for the text, such as note-1: the same id later replaces it. Left out: one is made."},
			{name: "label", text: "A title or a heading."},
			{name: "timestamp", text: "When it was said or happened, such as 2026-11-28T09:00:00Z. Left out: now."},
			{name: "metadata", text: "Details as names and values.", schema: metadataSchema},
			{name: audienceArgument},
			{name: identityArgument, identity: true, text: "Who said or wrote it."},
			{name: "idempotencyKey", operator: true, text: "A repeat with the same key changes nothing."},
		},
		act: actRemember, write: (*writer).remembered,
	}
}

// readTool returns the tool that reads a text from an offset on.
func readTool() tool {
	return tool{
		name: "read", title: "Read", scope: auth.Read,
		description: "Read a whole text by its source id, which recall shows in brackets. A long text comes in parts: go " +
			"on with offset.",
		args: []argument{
			{name: "sourceId", required: true, text: "The id in brackets, such as note-1.", schema: object{"type": "string"}},
			{
				name: "offset", text: "The character to go on from. Left out: the beginning.",
				schema: object{"type": "integer", "minimum": 0, "default": 0},
			},
			{name: identityArgument, identity: true, text: "Who reads.", schema: object{"type": "string"}},
		},
		shape: object{
			"type": "object", "required": []string{"sourceId", "occurredAt", "characters", "offset", "content"},
			"properties": object{
				"sourceId": object{"type": "string"}, "occurredAt": object{"type": "string"}, "author": object{"type": "string"},
				"label": object{"type": "string"}, "characters": object{"type": "integer"}, "offset": object{"type": "integer"},
				"next": object{"type": "integer"}, "content": object{"type": "string"},
			},
		},
		act: actRead, write: (*writer).readText,
	}
}

// forgetTool returns the tool that deletes texts.
func forgetTool() tool {
	return tool{
		name: "forget", title: "Forget", scope: auth.Write,
		description: "Delete a text for good, with all that was derived from it. Ask the user first. Name the source id " +
			"that recall shows, or the ingestionId that remember returned.",
		changes: true, destructive: true, repeatable: true,
		args: []argument{
			{name: "sourceId", text: "The id in brackets, such as note-1.", schema: object{"type": "string"}},
			{
				name: "ingestionId", text: "What remember returned, to undo that call: a UUID.",
				schema: object{"type": "string", "format": "uuid"},
			},
		},
		shape: object{
			"type": "object", "required": []string{"deleted", "kept", "gone"}, "properties": object{
				"deleted": object{"type": "array", "items": object{"type": "string"}},
				"kept":    object{"type": "array", "items": object{"type": "string"}},
				"gone":    object{"type": "integer"},
			},
		},
		act: actForget, write: (*writer).forgotten,
	}
}

// progressTool returns the tool that polls what was remembered.
func progressTool() tool {
	return tool{
		name: "get_ingestion", title: "Is it remembered?", scope: auth.Read, route: "GET " + ingest,
		description: "Whether recall finds a text that you remembered: processing, completed or failed. Call it only if " +
			"recall does not find the text after some seconds.",
		args: []argument{{name: "ingestionId", text: "What remember returned: a UUID."}},
		shape: object{
			"type": "object", "required": []string{"ingestionId", "status"}, "properties": object{
				"ingestionId": object{"type": "string"}, "status": object{"type": "string"},
				"failure": object{"type": "object", "properties": object{
					"code": object{"type": "string"}, "message": object{"type": "string"},
				}},
			},
		},
		act: actProgress, write: (*writer).progress,
	}
}
