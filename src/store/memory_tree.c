/* The one ordered structure of the memory store: a treap whose nodes sit inside the records.
 *
 * Because a node is part of its record, inserting and removing never allocate and so never fail;
 * memory_undo.c relies on that. Priorities come from a counter of the tree, not
 * from a clock or an address, so one history of calls always gives one shape.
 *
 * Invariants: in-order is the order of cmp; no node has a smaller priority than its children;
 * every child points back at its parent.
 */
#include "store/memory.h"

static uint32_t
tree_priority(mem_tree *tree)
{
    uint64_t x = (tree->drawn += 0x9e3779b97f4a7c15u);

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)(x >> 32);
}

/* Make whoever points at `old` point at `fresh`. */
static void
tree_replace(mem_tree *tree, mem_node *old, mem_node *fresh)
{
    mem_node *parent = old->parent;

    if (parent == NULL)
        tree->root = fresh;
    else if (parent->left == old)
        parent->left = fresh;
    else
        parent->right = fresh;
    if (fresh != NULL)
        fresh->parent = parent;
}

/* Rotate `node` over its parent. */
static void
tree_lift(mem_tree *tree, mem_node *node)
{
    mem_node *parent = node->parent;
    mem_node *moved;

    tree_replace(tree, parent, node);
    if (parent->left == node) {
        moved = node->right;
        node->right = parent;
        parent->left = moved;
    } else {
        moved = node->left;
        node->left = parent;
        parent->right = moved;
    }
    parent->parent = node;
    if (moved != NULL)
        moved->parent = parent;
}

void
stet__mem_tree_init(mem_tree *tree, mem_cmp_fn cmp)
{
    tree->root = NULL;
    tree->cmp = cmp;
    tree->drawn = 0;
}

void
stet__mem_tree_add(mem_tree *tree, mem_node *node)
{
    mem_node **at = &tree->root;
    mem_node  *parent = NULL;

    while (*at != NULL) {
        parent = *at;
        at = tree->cmp(node, parent) < 0 ? &parent->left : &parent->right;
    }
    *node = (mem_node){ .parent = parent, .priority = tree_priority(tree) };
    *at = node;
    while (node->parent != NULL && node->parent->priority < node->priority)
        tree_lift(tree, node);
}

void
stet__mem_tree_remove(mem_tree *tree, mem_node *node)
{
    while (node->left != NULL && node->right != NULL)
        tree_lift(tree, node->left->priority > node->right->priority ? node->left : node->right);
    tree_replace(tree, node, node->left != NULL ? node->left : node->right);
    *node = (mem_node){ 0 };
}

mem_node *
stet__mem_tree_ge(const mem_tree *tree, const mem_node *probe)
{
    mem_node *at = tree->root;
    mem_node *best = NULL;

    while (at != NULL) {
        if (tree->cmp(at, probe) >= 0) {
            best = at;
            at = at->left;
        } else {
            at = at->right;
        }
    }
    return best;
}

mem_node *
stet__mem_tree_lt(const mem_tree *tree, const mem_node *probe)
{
    mem_node *at = tree->root;
    mem_node *best = NULL;

    while (at != NULL) {
        if (tree->cmp(at, probe) < 0) {
            best = at;
            at = at->right;
        } else {
            at = at->left;
        }
    }
    return best;
}

mem_node *
stet__mem_tree_find(const mem_tree *tree, const mem_node *probe)
{
    mem_node *at = tree->root;
    int       order;

    while (at != NULL && (order = tree->cmp(at, probe)) != 0)
        at = order < 0 ? at->right : at->left;
    return at;
}

mem_node *
stet__mem_tree_first(const mem_tree *tree)
{
    mem_node *at = tree->root;

    while (at != NULL && at->left != NULL)
        at = at->left;
    return at;
}

mem_node *
stet__mem_tree_last(const mem_tree *tree)
{
    mem_node *at = tree->root;

    while (at != NULL && at->right != NULL)
        at = at->right;
    return at;
}

mem_node *
stet__mem_tree_next(const mem_node *node)
{
    mem_node *at = node->right;

    if (at == NULL) {
        for (at = node->parent; at != NULL && at->right == node; at = at->parent)
            node = at;
        return at;
    }
    while (at->left != NULL)
        at = at->left;
    return at;
}

mem_node *
stet__mem_tree_prev(const mem_node *node)
{
    mem_node *at = node->left;

    if (at == NULL) {
        for (at = node->parent; at != NULL && at->left == node; at = at->parent)
            node = at;
        return at;
    }
    while (at->right != NULL)
        at = at->right;
    return at;
}
