// The scripts of all pages begin with this.
"use strict";

const at = (id) => document.getElementById(id);
const isDark = () => getComputedStyle(document.documentElement).colorScheme === "dark";
function drawn(name, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// A policy's mark (policy_style.hpp). Circle, square, triangles up and down, diamond, pentagon: as gnuplot draws them.
const SHAPES = [null, "M-4-4H4V4H-4Z", "M0-5L5 4H-5Z", "M0 5L5-4H-5Z", "M0-5.5L5 0L0 5.5L-5 0Z", "M0-5L4.8-1.5L3 4.2H-3L-4.8-1.5Z"];
function mark(x, y, [shape, open] = [0, false], colour, size = 1) {
  const transform = `translate(${x} ${y}) scale(${size})`;
  const paint = { fill: open ? "var(--page)" : colour, stroke: colour, "stroke-width": 1.4, transform };
  return SHAPES[shape] ? drawn("path", { ...paint, d: SHAPES[shape] }) : drawn("circle", { ...paint, r: 4.3 });
}

