import { expect, test } from "vitest";
import { FrameParser, Groups } from "./stream.ts";

test("frames are found wherever the network cut the text", () => {
  const text = ': keep-alive\n\nid: 1\ndata: {"seq":1}\n\nevent: denied\ndata: a\ndata: b\n\nid: 2\r\ndata:x\r\n\r\n';
  for (let size = 1; size <= text.length; size++) {
    const parser = new FrameParser();
    const frames = [];
    for (let at = 0; at < text.length; at += size) frames.push(...parser.push(text.slice(at, at + size)));
    expect(frames).toEqual([
      { id: "1", event: "message", data: '{"seq":1}' },
      { id: "", event: "denied", data: "a\nb" },
      { id: "2", event: "message", data: "x" },
    ]);
  }
});

test("records of one id come together, once, and never out of order", () => {
  const groups = new Groups<string>(0);
  const push = (id: string, record: string): string[] => groups.push({ id, event: "message", data: "" }, record);
  expect(push("1", "a")).toEqual(["a"]);
  expect(push("", "b1")).toEqual([]);
  groups.cut(); // the connection ended before the group was whole: it comes again
  expect(push("", "b1")).toEqual([]);
  expect(push("2", "b2")).toEqual(["b1", "b2"]);
  expect(push("1", "a")).toEqual([]);
  expect(push("2", "b2")).toEqual([]);
  expect(push("5", "c")).toEqual(["c"]); // gaps are legal: not every event is asked for
  expect(groups.last).toBe(5);
});

test("what comes behind a cursor begins there", () => {
  const groups = new Groups<string>(7);
  expect(groups.push({ id: "7", event: "message", data: "" }, "old")).toEqual([]);
  expect(groups.push({ id: "8", event: "message", data: "" }, "new")).toEqual(["new"]);
});
