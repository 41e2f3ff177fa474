package server

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
	"github.com/stretchr/testify/require"

	"mlxcel/runtime"
	"mlxcel/runtime/server"
	"mlxcel/runtime/server/servertest"
)

// client is the official one, unchanged but for the address.
func client(url string) openai.Client {
	return openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey("key"), option.WithMaxRetries(0))
}

// errorMessage is what an error object said.
func errorMessage(t *testing.T, err error) string {
	t.Helper()
	var e *openai.Error
	require.ErrorAs(t, err, &e)
	return e.Message
}

// clientServer answers a client with a key.
func clientServer(t *testing.T) (openai.Client, *servertest.Model) {
	url, m := fakeServer(t, server.Options{Keys: []string{"key"}})
	m.Script = func(prompt string, _ runtime.Request) servertest.Answer {
		switch {
		case strings.Contains(prompt, "Tools:"):
			return servertest.Answer{Text: "I look.\n<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":\"Paris\"}}</tool_call>"}
		case strings.Contains(prompt, "fail"):
			return servertest.Answer{Text: "ab", Err: errors.New("the device is lost")}
		case strings.Contains(prompt, "think"):
			return servertest.Answer{Text: "<think>Hm.</think>Yes."}
		}
		return servertest.Answer{Text: "Héllo 世界"}
	}
	return client(url), m
}

func TestGoClientChat(t *testing.T) {
	c, _ := clientServer(t)
	params := openai.ChatCompletionNewParams{
		Model: "fake-1B",
		Messages: []openai.ChatCompletionMessageParamUnion{
			openai.DeveloperMessage("Be brief."), openai.SystemMessage("x"), openai.UserMessage("hi"), openai.AssistantMessage("yes?"),
			openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{openai.TextContentPart("who?")}),
		},
		MaxCompletionTokens: openai.Int(100), Temperature: openai.Float(0.5), TopP: openai.Float(0.9), Seed: openai.Int(7), N: openai.Int(2),
		FrequencyPenalty: openai.Float(0.1), PresencePenalty: openai.Float(0.2), Logprobs: openai.Bool(true), TopLogprobs: openai.Int(3),
		Stop: openai.ChatCompletionNewParamsStopUnion{OfStringArray: []string{"END"}}, LogitBias: map[string]int64{"5": -100},
		User: openai.String("u"), Metadata: shared.Metadata{"a": "b"},
	}
	answer, err := c.Chat.Completions.New(t.Context(), params)
	require.NoError(t, err)
	require.Len(t, answer.Choices, 2)
	require.Equal(t, "Héllo 世界", answer.Choices[0].Message.Content)
	require.Equal(t, "stop", answer.Choices[1].FinishReason)
	require.Len(t, answer.Choices[0].Logprobs.Content, 13)
	require.Len(t, answer.Choices[0].Logprobs.Content[0].TopLogprobs, 3)
	require.Positive(t, answer.Usage.PromptTokens)

	params.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := c.Chat.Completions.NewStreaming(t.Context(), params)
	var joined openai.ChatCompletionAccumulator
	for stream.Next() {
		require.True(t, joined.AddChunk(stream.Current()))
	}
	require.NoError(t, stream.Err())
	require.Equal(t, "Héllo 世界", joined.Choices[0].Message.Content)
	require.Equal(t, answer.Usage.CompletionTokens, joined.Usage.CompletionTokens)
}

// A whole round with a tool: the call, its result, the answer.
func TestGoClientTools(t *testing.T) {
	c, m := clientServer(t)
	params := openai.ChatCompletionNewParams{
		Model:    "default",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")},
		Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: "weather", Parameters: shared.FunctionParameters{"type": "object"},
		})},
		ToolChoice: openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("auto")},
	}
	answer, err := c.Chat.Completions.New(t.Context(), params)
	require.NoError(t, err)
	require.Equal(t, "tool_calls", answer.Choices[0].FinishReason)
	call := answer.Choices[0].Message.ToolCalls[0]
	require.Equal(t, `{"city":"Paris"}`, call.Function.Arguments)

	stream := c.Chat.Completions.NewStreaming(t.Context(), params)
	var joined openai.ChatCompletionAccumulator
	finished := false
	for stream.Next() {
		joined.AddChunk(stream.Current())
		if done, ok := joined.JustFinishedToolCall(); ok {
			finished = true
			require.Equal(t, "weather", done.Name)
			require.Equal(t, `{"city":"Paris"}`, done.Arguments)
		}
	}
	require.NoError(t, stream.Err())
	require.True(t, finished)
	require.Equal(t, "I look.", joined.Choices[0].Message.Content)

	params.Tools = nil
	params.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{}
	params.Messages = append(params.Messages, answer.Choices[0].Message.ToParam(), openai.ToolMessage("rain", call.ID))
	_, err = c.Chat.Completions.New(t.Context(), params)
	require.NoError(t, err)
	require.Contains(t, m.Prompt(m.Last()), "<|im_start|>tool\nrain<|im_end|>")
	require.Contains(t, m.Prompt(m.Last()), `<tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>I look.`)
}

func TestGoClientReasoning(t *testing.T) {
	c, _ := clientServer(t)
	answer, err := c.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("think")}, ReasoningEffort: shared.ReasoningEffortLow,
	})
	require.NoError(t, err)
	require.Equal(t, "Yes.", answer.Choices[0].Message.Content)
	var reasoning string
	require.NoError(t, json.Unmarshal([]byte(answer.Choices[0].Message.JSON.ExtraFields["reasoning_content"].Raw()), &reasoning))
	require.Equal(t, "Hm.", reasoning)
}

func TestGoClientErrors(t *testing.T) {
	c, m := clientServer(t)
	var e *openai.Error
	hi := []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}
	_, err := c.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{Messages: hi, Temperature: openai.Float(3)})
	require.ErrorAs(t, err, &e)
	require.Equal(t, 400, e.StatusCode)
	require.Equal(t, "temperature", e.Param)
	require.Equal(t, "invalid_request_error", e.Type)
	require.Contains(t, e.Message, "from 0 to 2")

	_, err = c.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{Messages: hi}, option.WithAPIKey("wrong"))
	require.ErrorAs(t, err, &e)
	require.Equal(t, 401, e.StatusCode)

	_, err = c.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{Messages: hi, Model: "gpt-5"})
	require.ErrorAs(t, err, &e)
	require.Equal(t, 404, e.StatusCode)

	stream := c.Chat.Completions.NewStreaming(t.Context(), openai.ChatCompletionNewParams{
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("fail")},
	})
	for stream.Next() {
	}
	require.ErrorContains(t, stream.Err(), "the device is lost")

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	m.Script = func(string, runtime.Request) servertest.Answer {
		return servertest.Answer{Text: "a", Endless: true, PerToken: time.Millisecond}
	}
	_, err = c.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{Messages: hi})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Eventually(t, func() bool { return m.Active() == 0 }, 5*time.Second, time.Millisecond)
}

func TestGoClientOtherRoutes(t *testing.T) {
	c, m := clientServer(t)
	models, err := c.Models.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, "fake-1B", models.Data[0].ID)
	model, err := c.Models.Get(t.Context(), "fake-1B")
	require.NoError(t, err)
	require.Equal(t, "fake-1B", model.ID)

	completion := openai.CompletionNewParams{
		Model: "fake-1B", Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"a", "b"}}, MaxTokens: openai.Int(3),
		Echo: openai.Bool(true),
	}
	answer, err := c.Completions.New(t.Context(), completion)
	require.NoError(t, err)
	require.Equal(t, "bHé", answer.Choices[1].Text)
	require.EqualValues(t, "length", answer.Choices[1].FinishReason)
	stream := c.Completions.NewStreaming(t.Context(), completion)
	texts := map[int64]string{}
	for stream.Next() {
		for _, choice := range stream.Current().Choices {
			texts[choice.Index] += choice.Text
		}
	}
	require.NoError(t, stream.Err())
	require.Equal(t, map[int64]string{0: "aHé", 1: "bHé"}, texts)

	_, err = c.Embeddings.New(t.Context(), openai.EmbeddingNewParams{
		Model: "default", Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("x")},
	})
	require.Contains(t, errorMessage(t, err), "is no embedding model")
	m.Vectors = true
	vectors, err := c.Embeddings.New(t.Context(), openai.EmbeddingNewParams{
		Model: "default", Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"x", "yz"}},
	})
	require.NoError(t, err)
	require.Equal(t, []float64{2, -0.5}, vectors.Data[1].Embedding)
}

func TestGoClientResponses(t *testing.T) {
	c, m := clientServer(t)
	params := responses.ResponseNewParams{
		Model: "fake-1B", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("think")}, Instructions: openai.String("Be brief."),
		MaxOutputTokens: openai.Int(100), Metadata: shared.Metadata{"a": "b"},
	}
	first, err := c.Responses.New(t.Context(), params)
	require.NoError(t, err)
	require.Equal(t, "Yes.", first.OutputText())
	require.Equal(t, responses.ResponseStatusCompleted, first.Status)
	require.Equal(t, "reasoning", first.Output[0].Type)
	got, err := c.Responses.Get(t.Context(), first.ID, responses.ResponseGetParams{})
	require.NoError(t, err)
	require.Equal(t, "Yes.", got.OutputText())

	params.PreviousResponseID = openai.String(first.ID)
	params.Input.OfString = openai.String("and now")
	params.Tools = []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{Name: "weather", Parameters: map[string]any{"type": "object"}}}}
	stream := c.Responses.NewStreaming(t.Context(), params)
	var text, arguments, status string
	for stream.Next() {
		switch e := stream.Current().AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			text += e.Delta
		case responses.ResponseFunctionCallArgumentsDoneEvent:
			arguments = e.Arguments
		case responses.ResponseCompletedEvent:
			status = string(e.Response.Status)
			require.Equal(t, text, e.Response.OutputText())
		}
	}
	require.NoError(t, stream.Err())
	require.Equal(t, "I look.", text)
	require.Equal(t, `{"city":"Paris"}`, arguments)
	require.Equal(t, "completed", status)
	require.Contains(t, m.Prompt(m.Last()), "think<|im_end|>\n<|im_start|>assistant\nYes.<|im_end|>")

	require.NoError(t, c.Responses.Delete(t.Context(), first.ID))
	_, err = c.Responses.New(t.Context(), params)
	require.Contains(t, errorMessage(t, err), "previous_response_id")
}
