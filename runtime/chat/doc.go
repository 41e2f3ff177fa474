// Package chat turns conversations into prompts and generated text back into
// messages.
//
// [Template] renders a conversation with the chat template that a model
// carries; [SelectTemplate] finds it among a model's files. [Splitter] takes
// streamed text apart into reasoning ("thinking") and answer.
//
// # Special tokens are written once
//
// A chat template writes all special tokens itself, the text that begins a
// sequence (BOS) among them if the model wants one. So the caller encodes a
// rendered prompt with special tokens recognised in the text, and without the
// ones that the tokenizer would put around it, as transformers does.
package chat
